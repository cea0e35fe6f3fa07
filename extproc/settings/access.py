"""How servers are reached, whoever names them: their API key, and their certificate."""

from __future__ import annotations

from typing import Protocol

from pydantic_core import PydanticCustomError

from extproc.core.address import is_ip
from extproc.security.trust import profile_name


class Keyed(Protocol):
    """Settings of one server, or of several that share a key; `address` is their name in texts."""

    @property
    def address(self) -> str: ...
    @property
    def api_key_env(self) -> str | None: ...
    @property
    def api_key_file(self) -> str | None: ...


class Access(Keyed, Protocol):
    """Settings of one server, or of several that are reached alike.

    `host` is the name or IP address that stands in their certificate unless `server_name` does.
    """

    @property
    def host(self) -> str: ...
    @property
    def inject_key(self) -> bool: ...
    @property
    def is_tls(self) -> bool: ...
    @property
    def ca_file(self) -> str | None: ...
    @property
    def server_name(self) -> str | None: ...


def check_access(access: Access) -> None:
    """Raise PydanticCustomError where parts of it contradict each other."""
    check_one_source(access.api_key_env, access.api_key_file, "api_key")
    if access.inject_key and access.api_key_env is None and access.api_key_file is None:
        raise PydanticCustomError("together", "inject_key needs api_key_env or api_key_file")
    if not access.is_tls and (access.ca_file is not None or access.server_name is not None):
        raise PydanticCustomError("together", "ca_file and server_name are for servers behind TLS")


def check_one_source(env: str | None, file: str | None, name: str) -> None:
    """Raise PydanticCustomError for a secret that is said to be in two places."""
    if env is not None and file is not None:
        raise PydanticCustomError(
            "one_of", "give {name}_env or {name}_file, not both", {"name": name}
        )


def profile_of(access: Access) -> str:
    """By which name Envoy knows how to speak TLS to it; empty for in the clear.

    Servers of the same authorities share one, unless an IP address is what stands in their
    certificate.
    """
    if not access.is_tls:
        return ""
    return tls_profile(access.ca_file, certified_ip(access))


def certified_ip(access: Access) -> str | None:
    """The IP address that its certificate must hold; None for a name, which each server has."""
    name = access.server_name or access.host
    return name if is_ip(name) else None


def tls_profile(ca_file: str | None, ip: str | None = None) -> str:
    """The name of the profile for servers of these authorities (None: the system's)."""
    return profile_name(ca_file or "", ip)
