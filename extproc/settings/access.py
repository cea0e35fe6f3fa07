"""How servers are reached, for every source of endpoints: API key and certificate."""

from typing import Protocol

from pydantic_core import PydanticCustomError

from extproc.core.address import is_ip
from extproc.security.trust import profile_name


class Access(Protocol):
    """Settings of one server, or of several that are reached in the same way.

    `address` names them in messages. `host` is the name or IP address in their certificate unless
    `server_name` is set.
    """

    @property
    def address(self) -> str: ...
    @property
    def api_key_env(self) -> str | None: ...
    @property
    def api_key_file(self) -> str | None: ...
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
    """Raise PydanticCustomError if settings contradict each other."""
    check_one_source(access.api_key_env, access.api_key_file, "api_key")
    if access.inject_key and access.api_key_env is None and access.api_key_file is None:
        raise PydanticCustomError("together", "inject_key needs api_key_env or api_key_file")
    if not access.is_tls and (access.ca_file is not None or access.server_name is not None):
        raise PydanticCustomError("together", "ca_file and server_name are for servers behind TLS")


def check_one_source(env: str | None, file: str | None, name: str) -> None:
    """Raise PydanticCustomError for a secret with two sources."""
    if env is not None and file is not None:
        raise PydanticCustomError(
            "one_of", "give {name}_env or {name}_file, not both", {"name": name}
        )


def profile_of(access: Access) -> str:
    """The TLS profile that Envoy uses for it; empty without TLS.

    Servers with the same CA share one, unless their certificates contain IP addresses.
    """
    if not access.is_tls:
        return ""
    return tls_profile(access.ca_file, certified_ip(access))


def certified_ip(access: Access) -> str | None:
    """The IP address that its certificate must contain; None for a host name, which each server
    has.
    """
    name = access.server_name or access.host
    return name if is_ip(name) else None


def tls_profile(ca_file: str | None, ip: str | None = None) -> str:
    """The name of the profile for servers with this CA (None: the system's CAs)."""
    return profile_name(ca_file or "", ip)
