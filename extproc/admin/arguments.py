"""Parses and validates callers' arguments: endpoints by address or name, ids, numbers."""

import asyncio
import math
import re
import socket
from collections.abc import Collection
from typing import Final

from extproc.admin.call_errors import already, at_limit, invalid, not_found, not_now, quoted
from extproc.core.address import Address, AddressError
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.membership import Fleet
from extproc.transport.descriptors import own_fault

MAX_NAME_CHARS: Final = 253
MAX_ID_CHARS: Final = 256
MAX_DEADLINE_S: Final = 7 * 24 * 3600.0
NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
RESOLVE_TIMEOUT_S: Final = 5.0


def find_pool(pools: Collection[str], name: str) -> str:
    """The pool of that name, empty for none; raises `CallError` for an unknown one."""
    if name and name not in pools:
        known = f"; there are {', '.join(pools)}" if pools else ": no pools are configured"
        raise not_found(f"there is no pool {quoted(name)}{known}")
    return name


def find_endpoint(fleet: Fleet, text: str) -> Endpoint:
    """The endpoint with this address, or the only one with this name or host name, with its port
    or without; a scheme before it does not count. Raises `CallError`."""
    checked(text, "address", MAX_NAME_CHARS)
    plain = text.strip().removeprefix("https://").removeprefix("http://")
    try:
        endpoint = fleet.get(Address.parse(plain))
    except AddressError:
        named = _named(fleet, plain)
        if len(named) > 1:
            addresses = ", ".join(str(endpoint.address) for endpoint in named[:5])
            raise not_now(
                f"{len(named)} endpoints have the name {quoted(text)}: give the address of one "
                f"({addresses})"
            ) from None
        endpoint = named[0] if named else None
    if endpoint is None:
        raise not_found(
            f"no endpoint {quoted(text)} is in the fleet; `coxswain endpoints` lists the fleet"
        )
    return endpoint


def _named(fleet: Fleet, text: str) -> list[Endpoint]:
    """Those with this name; else those with this host name, which are rather in the fleet than
    about to leave it."""
    if named := [endpoint for endpoint in fleet if text == endpoint.spec.name]:
        return named
    host = text.lower()
    hosted = [
        endpoint
        for endpoint in fleet
        if (name := endpoint.spec.hostname.lower())
        and host in (name, f"{name}:{endpoint.address.port}")
    ]
    return [endpoint for endpoint in hosted if not endpoint.is_removed] or hosted


async def read_new_address(text: str) -> tuple[Address, str]:
    """The address of `ip:port`, or of `name:port` with its name; raises `CallError`."""
    checked(text, "address", MAX_NAME_CHARS)
    if "://" in text:
        raise invalid(f"{quoted(text)}: write host:port or https://host:port")
    try:
        return Address.parse(text), ""
    except AddressError as error:
        host, colon, port = text.strip().rpartition(":")
        if not colon or "[" in host or ":" in host or NAME.fullmatch(host) is None:
            raise invalid(str(error)) from None
        if host.rpartition(".")[2].isdigit():  # an invalid IP address, not a name
            raise invalid(str(error)) from None
    try:
        address = Address.of(await _resolved(host), port)
    except AddressError as error:
        raise invalid(str(error)) from None
    return address, host


async def _resolved(host: str) -> str:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a timeout is an OSError too
        if fault := own_fault(error):
            raise at_limit(f"this picker has reached a limit ({fault}); try again") from None
        raise not_now(
            f"{quoted(host)} cannot be resolved here; check the name, or give an IP address"
        ) from None
    return str(found[0][4][0])


def check_new_name(fleet: Fleet, text: str) -> None:
    """Raise `CallError` for what cannot be the name of a new endpoint; it may be empty."""
    if not text:
        return
    if len(text) > MAX_NAME_CHARS or NAME.fullmatch(text) is None:
        raise invalid(
            f"name: letters, digits, '.', '-' and '_' are allowed, at most {MAX_NAME_CHARS}, "
            "with a letter or digit at each end"
        )
    if any(endpoint.spec.name == text for endpoint in fleet):
        raise already(f"another endpoint is named {quoted(text)}; choose another name")


def at_most(text: str, field: str, max_chars: int) -> str:
    """A text that may be empty, of a sane length and without control characters.

    Raises `CallError`.
    """
    if len(text) > max_chars or not text.isprintable():
        raise invalid(f"{field}: at most {max_chars} printable characters")
    return text


def checked(text: str, field: str, max_chars: int) -> str:
    """A text that must be there and be of a sane length; raises `CallError`."""
    if not text.strip():
        raise invalid(f"{field}: this must not be empty")
    if len(text) > max_chars:
        raise invalid(f"{field}: {len(text)} characters; at most {max_chars} are allowed")
    return text


def read_deadline(seconds: float) -> float | None:
    """The deadline in seconds, None without one; raises `CallError`."""
    if not math.isfinite(seconds) or not 0 <= seconds <= MAX_DEADLINE_S:
        raise invalid(f"deadline_s: 0 to {MAX_DEADLINE_S:g} seconds; 0 means no deadline")
    return seconds or None


def read_limit(limit: int, field: str, default: int, maximum: int) -> int:
    """The highest number to list; raises `CallError`."""
    if limit > maximum:
        raise invalid(f"{field}: at most {maximum}; 0 means {default}")
    return limit or default
