"""The listen addresses of `coxswain up`, checked before anything is started."""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extproc.core.address import MAX_PORT
from extproc.demo.port import LOOPBACK, free_port, listening_problem
from extproc.settings import Settings
from extproc.settings.values import split_host_port

FIRST_FREE_PORT: Final = 1024


class ListenAddressError(Exception):
    """Some addresses cannot be used; the text names each, and what to pass instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """One listening part and its setting's key and value. Some ports have a flag of their own."""

    part: str
    key: str
    host: str
    port: int
    flag: str = ""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def moved_to(self, port: int) -> str:
        """What to pass so that it listens on that port."""
        if self.flag:
            return f"{self.flag} {port}"
        return f"--set {self.key}={replace(self, port=port).address}"


def clients_listen(settings: Settings, host: str | None, port: int | None) -> str:
    """The assignment of where Envoy serves clients: on loopback, unless `host` or the settings name
    another address."""
    address = _listen_address("Envoy", "envoy.listen", settings.envoy.listen)
    if host is None:
        host = address.host if "listen" in settings.envoy.model_fields_set else LOOPBACK
    port = address.port if port is None else port
    return f"{address.key}={replace(address, host=host.strip('[]'), port=port).address}"


def listen_addresses(settings: Settings) -> list[ListenAddress]:
    """Every address on which `coxswain up` listens with these settings."""
    return [
        _listen_address("Envoy", "envoy.listen", settings.envoy.listen, flag="--port"),
        _listen_address("Envoy's admin pages", "envoy.admin", settings.envoy.admin),
        _listen_address("the picker", "listen.grpc", settings.listen.grpc),
        _listen_address("the picker's status pages", "listen.http", settings.listen.http),
        _listen_address("the picker's admin services", "listen.admin", settings.listen.admin),
    ]


def settle(addresses: Sequence[ListenAddress]) -> list[str]:
    """Check that each address is free; returns assignments for those whose port 0 was chosen.

    Raises `ListenAddressError` with all that are not, so that one more try is enough.
    """
    wanted: dict[int, ListenAddress] = {}
    faults, remedies = [], []
    for address in addresses:
        if address.port == 0:
            continue
        fault = _fault(address, wanted.setdefault(address.port, address))
        if fault:
            faults.append(fault)
            remedies.append(_remedy(address, wanted))
    if faults:
        text = faults[0] if len(faults) == 1 else "\n  ".join(["", *faults])
        raise ListenAddressError(f"{text}\nFix that, or pass {' '.join(remedies)}")
    return [
        f"{address.key}={replace(address, port=free_port(address.host)).address}"
        for address in addresses
        if address.port == 0
    ]


def _fault(address: ListenAddress, first: ListenAddress) -> str:
    if first is not address:
        return f"port {address.port} is used for both {first.part} and {address.part}"
    problem = listening_problem(address.port, address.host)
    if problem is None:
        return ""
    return f"port {address.port} for {address.part} cannot be used ({problem}: {address.address})"


def _remedy(address: ListenAddress, wanted: dict[int, ListenAddress]) -> str:
    """The option to pass instead; its port counts as used from now on."""
    if listening_problem(0, address.host) is not None:
        return f"--set {address.key}={replace(address, host=LOOPBACK).address}"
    for port in _others(address.port):
        if port not in wanted and listening_problem(port, address.host) is None:
            wanted[port] = address
            return address.moved_to(port)
    return address.moved_to(0)


def _others(port: int) -> Iterator[int]:
    """Similar ports: each 10 higher, and at the end of the range 10 lower."""
    step = 10 if port < MAX_PORT - 1000 else -10
    if port < FIRST_FREE_PORT:  # only for who may listen there
        port += 10_000
    yield from (port + step * number for number in range(1, 50))


def connectable(host: str) -> str:
    """Where to connect to reach a listener on `host`: loopback when that is all interfaces."""
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not literal.is_unspecified:
        return host
    return LOOPBACK if literal.version == 4 else "::1"


def url_of(listens_at: str) -> str:
    """The URL under which a listener on `host:port` is reached from this machine."""
    host, port = split_host_port(listens_at)
    reached = connectable(host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def _listen_address(part: str, key: str, value: str, flag: str = "") -> ListenAddress:
    host, port = split_host_port(value)
    return ListenAddress(part=part, key=key, host=host, port=port, flag=flag)
