"""From the settings' endpoints and names to what discovery follows: keys and authorities read.

Everything here blocks on the disk, for the files that hold keys and certificates.
"""

from __future__ import annotations

import errno
import os
import ssl
import stat
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from extproc.settings import (
    Problem,
    SettingsError,
    parse_endpoints,
    profile_of,
    read_api_keys,
)
from scraper.discovery.dns import DnsName
from scraper.discovery.nomination import Listing, ListingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from extproc.settings import Access, DnsSettings, EndpointSettings

MAX_CA_BYTES: Final = 4 * 1024 * 1024
"""The system's own authorities are a quarter of a megabyte."""


def listings_of(endpoints: Iterable[EndpointSettings]) -> list[Listing]:
    """The endpoints as discovery takes them; raises `SettingsError` for what cannot be read."""
    endpoints = tuple(endpoints)
    keys = read_api_keys(endpoints)
    return [
        _listing(
            endpoint,
            port=endpoint.port,
            name=endpoint.name or "",
            slots=endpoint.slots,
            api_key=keys.get(endpoint.address),
        )
        for endpoint in endpoints
    ]


def names_of(names: Iterable[DnsSettings]) -> list[DnsName]:
    """The names as discovery follows them; raises `SettingsError` for what cannot be read."""
    names = tuple(names)
    keys = read_api_keys(names)
    return [
        DnsName(
            listing=_listing(
                name,
                port=name.port or 0,
                name="",
                slots=name.slots,
                api_key=keys.get(name.address),
            ),
            is_service=name.type == "srv",
        )
        for name in names
    ]


def read_endpoints(
    content: bytes, name: str, note_secrets: Callable[[set[Path]], None]
) -> Sequence[Listing]:
    """What an endpoints file called `name` says; raises `ListingError`.

    `note_secrets` hears which files hold its keys, also where one of them cannot be read.
    """
    try:
        endpoints = parse_endpoints(content, name)
        note_secrets(secret_files(endpoints))
        return listings_of(endpoints)
    except SettingsError as error:
        raise ListingError("; ".join(map(str, error.problems))) from None


def secret_files(accesses: Iterable[Access]) -> set[Path]:
    """The files that hold their keys and the authorities of their certificates."""
    named = (file for each in accesses for file in (each.api_key_file, each.ca_file))
    return {Path(file).expanduser() for file in named if file is not None}


def _listing(
    access: Access, *, port: int, name: str, slots: int | None, api_key: str | None
) -> Listing:
    ca_file, ca_digest = _authorities(access)
    try:
        return Listing(
            host=access.host,
            port=port,
            name=name,
            slots=slots,
            api_key=api_key,
            is_injected=access.inject_key,
            is_tls=access.is_tls,
            ca_file=ca_file,
            ca_digest=ca_digest,
            server_name=access.server_name,
            tls_profile=profile_of(access),
        )
    except ListingError as error:
        raise SettingsError([Problem(where="", key="API key", message=str(error))]) from None


def _authorities(access: Access) -> tuple[str | None, str]:
    """The file with a server's authorities, and what tells one content of it from another."""
    if access.ca_file is None:
        return None, ""
    file = str(Path(access.ca_file).expanduser())
    try:
        digest = sha256(_content(file)).hexdigest()
        ssl.create_default_context(cafile=file)
    except OSError as error:  # what is no certificate is one too
        reason = error.strerror or "it holds no certificates"
        problem = Problem(where=access.address, key="ca_file", message=f"{file}: {reason}")
        raise SettingsError([problem]) from None
    return file, digest


def _content(file: str) -> bytes:
    """All of a file of certificates; raises `OSError`, and never waits: an operator may name it."""
    found = os.stat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_CA_BYTES:
        raise OSError(errno.EINVAL, "no file of certificates")
    with open(file, "rb") as stream:
        return stream.read(MAX_CA_BYTES)
