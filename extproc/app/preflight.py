"""Finds every problem that would prevent a start with these settings.

Everything here blocks on the disk: it reads the files that the settings name.
"""

import ipaddress
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Final

from extproc.app.discovery.entries import entries_of, groups_of, names_of
from extproc.app.pool_ports import pool_address
from extproc.app.rules import read_rules
from extproc.app.security import exposure
from extproc.app.security.ca_bundles import read_ca_bundles
from extproc.envoy_config.options import OptionsError, envoy_options
from extproc.settings import (
    Access,
    Problem,
    Settings,
    SettingsError,
    parse_endpoints,
    read_api_keys,
)
from extproc.settings.client_keys import read_client_keys
from extproc.settings.endpoint_section import named_twice, woken_differently
from extproc.settings.pool_section import default_pool, misplaced
from extproc.settings.values import split_host_port
from extproc.usage.store import UsageError, check_writable


def startup_problems(settings: Settings) -> tuple[Problem, ...]:
    """Each reason for which a picker would not start; ports in use are not checked."""
    found = settings.discovery
    servers: tuple[Access, ...] = (*settings.endpoints, *found.dns, *found.kubernetes)
    return _found(
        lambda: read_api_keys(servers),
        lambda: read_ca_bundles(servers),
        lambda: entries_of(settings.endpoints),
        lambda: names_of(found.dns),
        lambda: groups_of(found),
        lambda: exposure.operators_token(settings),
        lambda: exposure.agents_token(settings),
        lambda: exposure.data_plane_certificates(settings),
        lambda: exposure.admin_credentials(settings),
        lambda: exposure.keda_credentials(settings),
        lambda: exposure.check_exposure(settings),
        lambda: _check_ports(_own_ports(settings)),
        lambda: _check_client_keys(settings),
        lambda: read_rules(settings),
    )


def followed_problems(settings: Settings) -> tuple[Problem, ...]:
    """Each mistake in what a picker can do without, with which `serve` would start and wait for
    something better: the endpoints file, if it is there, the file of usage, `scale.command`."""
    return _found(
        lambda: _check_followed(settings),
        lambda: _check_scale_command(settings),
        lambda: _check_usage(settings),
    )


def envoy_problems(settings: Settings) -> tuple[Problem, ...]:
    """Each reason for which no Envoy configuration can be printed; a picker alone needs none."""
    beside = {} if settings.envoy.picker else _own_ports(settings)
    return _found(
        lambda: _check_envoy(settings),
        lambda: _check_ports(_envoys_ports(settings), beside),
    )


def awaits_file(settings: Settings) -> bool:
    """Whether the endpoints file is not there yet: a picker waits for it."""
    file = _followed(settings)
    return file is not None and not file.exists()


def _found(*checks: Callable[[], object]) -> tuple[Problem, ...]:
    """What each of them raises, in their order, and nothing twice."""
    problems: dict[Problem, None] = {}
    for check in checks:
        try:
            check()
        except SettingsError as error:
            problems.update(dict.fromkeys(error.problems))
    return tuple(problems)


def _followed(settings: Settings) -> Path | None:
    file = settings.discovery.file
    return None if file is None else Path(file).expanduser()


def _check_scale_command(settings: Settings) -> None:
    command = settings.scale.command
    if command and shutil.which(command[0]) is None:
        raise _error("scale.command", f"{command[0]}: no such program, or not executable")


def _own_ports(settings: Settings) -> dict[str, str]:
    """Where the picker listens, by the setting."""
    cluster = settings.cluster
    members = cluster.listen or cluster.advertise if cluster.name else None
    pools = {
        f"pools.{name}.port": pool_address(settings, pool.port)
        for name, pool in settings.pools.items()
        if pool.port is not None
    }
    return _set(
        {
            "listen.grpc": settings.listen.grpc,
            "listen.admin": settings.listen.admin,
            "listen.http": settings.listen.http,
            "keda.listen": settings.keda.listen,
            "cluster.listen": members,
            **pools,
        }
    )


def _envoys_ports(settings: Settings) -> dict[str, str]:
    """Where Envoy listens, by the setting."""
    envoy = settings.envoy
    return _set(
        {
            "envoy.listen": envoy.listen,
            "envoy.admin": envoy.admin,
            "envoy.metrics": envoy.metrics,
        }
    )


def _set(ports: Mapping[str, str | None]) -> dict[str, str]:
    return {key: address for key, address in ports.items() if address is not None}


def _check_ports(ports: Mapping[str, str], taken: Mapping[str, str] | None = None) -> None:
    """Each port of `ports` is there once, and none of them is in `taken`."""
    problems = []
    for (earlier, one), (later, other) in _pairs(ports, taken or {}):
        if _clash(one, other):
            message = f"{other} is also {earlier}; choose another port"
            problems.append(Problem(where="", key=later, message=message))
    if problems:
        raise SettingsError(problems)


def _pairs(
    ports: Mapping[str, str], taken: Mapping[str, str]
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    yield from combinations(ports.items(), 2)
    for one in taken.items():
        for other in ports.items():
            yield one, other


def _clash(one: str, other: str) -> bool:
    """Whether two listeners want the same port of the same address; port 0 is any free one."""
    (host, port), (other_host, other_port) = split_host_port(one), split_host_port(other)
    if port != other_port or not port:
        return False
    hosts = {_LOOPBACK.get(each, each) for each in (host.lower(), other_host.lower())}
    return len(hosts) == 1 or any(_is_everywhere(each) for each in hosts)


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


_LOOPBACK: Final = {"localhost": "127.0.0.1"}


def _check_followed(settings: Settings) -> None:
    file = _followed(settings)
    if file is None or not file.exists():
        return
    try:
        if not file.is_file():  # opening a pipe would block
            raise _error("discovery.file", f"{file}: not a file")
        content = file.read_bytes()
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise _error("discovery.file", f"{file}: {reason}") from None
    endpoints = parse_endpoints(content, str(file))
    if problem := named_twice(endpoints) or woken_differently(endpoints):
        raise _error("discovery.file", f"{file}: {problem}")
    default = default_pool(settings.pools)
    for endpoint in endpoints:
        if problem := misplaced(endpoint, settings.pools, default):
            raise _error("discovery.file", f"{file}: {problem}")
    if problems := _found(lambda: read_api_keys(endpoints), lambda: read_ca_bundles(endpoints)):
        raise SettingsError(problems)


def _check_client_keys(settings: Settings) -> None:
    if settings.clients.keys_file is not None:
        read_client_keys(Path(settings.clients.keys_file).expanduser())


def _check_usage(settings: Settings) -> None:
    if settings.usage.path is None:
        return
    try:
        check_writable(Path(settings.usage.path).expanduser())
    except UsageError as error:
        raise _error("usage.path", str(error)) from None


def _check_envoy(settings: Settings) -> None:
    try:
        envoy_options(settings)
    except OptionsError as error:
        raise _error("", str(error)) from None


def _error(key: str, message: str) -> SettingsError:
    return SettingsError([Problem(where="", key=key, message=message)])
