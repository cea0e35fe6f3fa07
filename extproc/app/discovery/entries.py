"""From the settings' endpoints and names to entries of discovery, with their keys and CAs.

Everything here blocks on the disk, for the files that hold keys and certificates.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from extproc.app.security.ca_bundles import path_of, read_ca_bundles, trust_of
from extproc.core.fleet.endpoint import ContextSharing
from extproc.settings import (
    Access,
    DnsSettings,
    EndpointSettings,
    Problem,
    SettingsError,
    parse_endpoints,
    read_api_keys,
)
from scraper.discovery.discovered_endpoint import EndpointEntry, EndpointEntryError
from scraper.discovery.dns import DnsName

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


def read_endpoints(
    content: bytes, name: str, note_secrets: Callable[[set[Path]], None]
) -> Sequence[EndpointEntry]:
    """What an endpoints file called `name` says; raises `EndpointEntryError`.

    `note_secrets` hears which files hold its keys, also where one of them cannot be read.
    """
    try:
        endpoints = parse_endpoints(content, name)
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


def _entries(accesses: Sequence[EndpointSettings] | Sequence[DnsSettings]) -> list[EndpointEntry]:
    keys = read_api_keys(accesses)
    ca_bundles = read_ca_bundles(accesses)
    return [_entry(access, ca_bundles, keys.get(access.address)) for access in accesses]


def _entry(
    access: EndpointSettings | DnsSettings, ca_bundles: Mapping[str, bytes], api_key: str | None
) -> EndpointEntry:
    ca_file = None if access.ca_file is None else path_of(access.ca_file)
    content = b"" if ca_file is None else ca_bundles[ca_file]
    try:
        return EndpointEntry(
            host=access.host,
            port=access.port or 0,
            name=(access.name or "") if isinstance(access, EndpointSettings) else "",
            slots=access.slots,
            context=ContextSharing(access.context),
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
