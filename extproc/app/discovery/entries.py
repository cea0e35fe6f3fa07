"""From the settings' endpoints and names to entries of discovery, with their keys and CAs.

Everything here blocks on the disk, for the files that hold keys and certificates.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from extproc.app.security.ca_bundles import path_of, read_ca_bundles, trust_of
from extproc.core.constraints import FIRST_TIER
from extproc.core.fleet.endpoint import ContextSharing, WakeOptions
from extproc.core.price import FREE, Price
from extproc.kubernetes.service_account import (
    ServiceAccount,
    ServiceAccountError,
    find_service_account,
)
from extproc.runners.kind import RunnerKind
from extproc.settings import (
    Access,
    DiscoverySettings,
    DnsSettings,
    EndpointSettings,
    KubernetesSettings,
    Problem,
    SettingsError,
    parse_endpoints,
    read_api_keys,
)
from scraper.discovery.discovered_endpoint import EndpointEntry, EndpointEntryError
from scraper.discovery.dns import DnsName
from scraper.discovery.kubernetes import PodGroup

Servers: TypeAlias = EndpointSettings | DnsSettings | KubernetesSettings

log = logging.getLogger("coxswain.discovery")


def entries_of(endpoints: Iterable[EndpointSettings]) -> list[EndpointEntry]:
    """The endpoints as discovery takes them; raises `SettingsError` for what cannot be read."""
    return _entries(tuple(endpoints))


def names_of(names: Iterable[DnsSettings]) -> list[DnsName]:
    """The names as discovery follows them; raises `SettingsError` for what cannot be read."""
    names = tuple(names)
    return [
        DnsName(entry=entry, is_service=name.type == "srv")
        for name, entry in zip(names, _entries(names), strict=True)
    ]


def groups_of(discovery: DiscoverySettings) -> list[PodGroup]:
    """The pods as discovery follows them; raises `SettingsError` for what cannot be read."""
    if not discovery.kubernetes:
        return []
    account = service_account_of(discovery)
    return [
        PodGroup(
            entry=entry,
            namespace=group.namespace or account.namespace,
            pool=group.pool or "",
            selector=group.selector or "",
            service=group.service or "",
            ports=group.ports,
        )
        for group, entry in zip(discovery.kubernetes, _entries(discovery.kubernetes), strict=True)
    ]


def service_account_of(discovery: DiscoverySettings) -> ServiceAccount:
    """How the API server is reached; raises `SettingsError` where the settings do not say it."""
    namespace = discovery.kubernetes_namespace
    if all(group.namespace for group in discovery.kubernetes):
        namespace = namespace or discovery.kubernetes[0].namespace
    try:
        return find_service_account(
            discovery.kubernetes_api, namespace, discovery.kubernetes_folder
        )
    except ServiceAccountError as error:
        problem = Problem(where="", key=f"discovery.{error.key}", message=str(error))
        raise SettingsError([problem]) from None


def read_endpoints(
    content: bytes,
    name: str,
    note_secrets: Callable[[set[Path]], None],
    misplaced: Callable[[EndpointSettings], str] = lambda _: "",
) -> Sequence[EndpointEntry]:
    """What an endpoints file called `name` says; raises `EndpointEntryError`.

    `note_secrets` hears which files hold its keys, also where one of them cannot be read;
    `misplaced` says why an endpoint is in no pool that there is.
    """
    try:
        endpoints = parse_endpoints(content, name)
        for endpoint in endpoints:
            if problem := misplaced(endpoint):
                raise EndpointEntryError(f"{name}: {problem}")
        note_secrets(secret_files(endpoints))
        return entries_of(endpoints)
    except SettingsError as error:
        raise EndpointEntryError("; ".join(map(str, error.problems))) from None


def secret_files(accesses: Iterable[Access]) -> set[Path]:
    """The files with their keys and CAs."""
    named = (file for each in accesses for file in (each.api_key_file, each.ca_file))
    return {Path(file).expanduser() for file in named if file is not None}


def kept_as_it_was(server: object, reason: str) -> str:
    """Log that a server's key or CA could not be reloaded; returns the text."""
    problem = f"{server}: keeping its previous key and CA: {reason}"
    log.error("%s", problem)
    return problem


def _entries(accesses: Sequence[Servers]) -> list[EndpointEntry]:
    keys = read_api_keys(accesses)
    ca_bundles = read_ca_bundles(accesses)
    return [_entry(access, ca_bundles, keys.get(access.address)) for access in accesses]


def _entry(access: Servers, ca_bundles: Mapping[str, bytes], api_key: str | None) -> EndpointEntry:
    ca_file = None if access.ca_file is None else path_of(access.ca_file)
    content = b"" if ca_file is None else ca_bundles[ca_file]
    try:
        return EndpointEntry(
            host=access.host,
            port=0 if isinstance(access, KubernetesSettings) else access.port or 0,
            name=(access.name or "") if isinstance(access, EndpointSettings) else "",
            slots=access.slots,
            kind=RunnerKind(access.kind),
            context=ContextSharing(access.context),
            labels=tuple(sorted(access.labels.items())),
            tier=access.tier if isinstance(access, EndpointSettings) else FIRST_TIER,
            far_models=_far_models(access),
            price=_price(access),
            wake=_wake(access),
            pool=access.in_pool or "",
            may_sleep=access.may_sleep,
            api_key=api_key,
            is_injected=access.inject_key,
            is_tls=access.is_tls,
            ca_file=ca_file,
            ca_digest=sha256(content).hexdigest() if content else "",
            server_name=access.server_name,
            trust=trust_of(access, content),
        )
    except EndpointEntryError as error:
        raise SettingsError([Problem(where="", key="API key", message=str(error))]) from None


def _far_models(access: Servers) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(access.models.items())) if isinstance(access, EndpointSettings) else ()


def _wake(access: Servers) -> WakeOptions | None:
    wake = access.wake if isinstance(access, EndpointSettings) else None
    return None if wake is None else wake.for_core()


def _price(access: Servers) -> Price:
    price = access.price if isinstance(access, EndpointSettings) else None
    return FREE if price is None else Price(**price.model_dump())
