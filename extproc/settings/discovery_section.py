"""Where endpoints come from besides the `endpoints` list: a file, name servers, agents."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.settings.access import check_access
from extproc.settings.section import Section
from extproc.settings.values import (
    LIST,
    File,
    Seconds,
    ServerName,
    SlotCount,
    SomeSeconds,
    Target,
    Whole,
    split_host_port,
)

DNS_URL: Final = re.compile(r"(dns|srv)://([^/]+)/?")


class DnsSettings(Section):
    """A name whose addresses are endpoints. `dns://name:port` is short for type a, `srv://name`
    for type srv."""

    name: str = Field(
        min_length=1,
        max_length=253,
        pattern=r"^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9.])?$",
        description="The name to look up. One that ends with a dot goes through no search list.",
    )
    port: Annotated[Whole, Field(ge=1, le=65_535)] | None = Field(
        default=None, description="The port of all its servers; type a needs it."
    )
    type: Literal["a", "srv"] = Field(
        default="a",
        description="`a` takes the A and AAAA records, `srv` the hosts and ports of SRV records.",
    )
    slots: SlotCount | None = Field(
        default=None, description="How many slots each has, for servers that do not tell."
    )
    may_sleep: bool | None = Field(
        default=None, description="Whether they were started with --sleep-idle-seconds."
    )
    api_key_env: str | None = Field(
        default=None,
        min_length=1,
        description="The environment variable that holds the servers' API key.",
    )
    api_key_file: File | None = Field(
        default=None, description="The file that holds the servers' API key."
    )
    inject_key: bool = Field(
        default=False,
        description="Whether Envoy sends these servers their API key with each request.",
    )
    tls: bool = Field(default=False, description="Whether these servers speak TLS.")
    ca_file: File | None = Field(
        default=None,
        description="With tls: the authorities to trust, PEM, here and where Envoy runs; by "
        "default the system's.",
    )
    server_name: ServerName | None = Field(
        default=None,
        description="With tls: the name in the servers' certificates; by default the host's.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            url = DNS_URL.fullmatch(value.strip())
            if url is None:
                raise PydanticCustomError("dns", "write dns://name:port, or srv://name")
            if url[1] == "srv":
                return {"name": url[2], "type": "srv"}
            host, port = split_host_port(url[2])
            return {"name": host, "port": port}
        if not isinstance(value, dict | DnsSettings):
            raise PydanticCustomError("dns", "write dns://name:port, or a section with a name")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.type == "a" and self.port is None:
            raise PydanticCustomError("dns", "type a needs a port")
        if self.type == "srv" and self.port is not None:
            raise PydanticCustomError("dns", "SRV records tell the port; remove it here")
        if self.name.rstrip(".").rpartition(".")[2].isdigit():
            raise PydanticCustomError("dns", "this is an IP address; put it under `endpoints`")
        check_access(self)
        return self

    @property
    def host(self) -> str:
        """The name that is looked up."""
        return self.name

    @property
    def is_tls(self) -> bool:
        """Whether the servers speak TLS."""
        return self.tls

    @property
    def address(self) -> str:
        """How it is called in texts."""
        return self.name if self.port is None else f"{self.name}:{self.port}"


class DiscoverySettings(Section):
    """Further sources of endpoints. All may be mixed; one address is one endpoint."""

    file: File | None = Field(
        default=None,
        description="A YAML or JSON file with a list `endpoints`, written like the one here. "
        "It is followed: a change applies within a second, a broken file changes nothing.",
    )
    dns: Annotated[tuple[DnsSettings, ...], LIST] = Field(
        default=(),
        description="Names to follow: a list of dns://name:port or srv://name, or of sections "
        "with the keys below.",
    )
    dns_min_s: SomeSeconds = Field(
        default=1.0, description="A name is looked up at most so often, however short its TTL."
    )
    dns_max_s: SomeSeconds = Field(
        default=5.0, description="A name is looked up at least so often, however long its TTL."
    )
    nameservers: Annotated[tuple[Target, ...], LIST] = Field(
        default=(),
        description="Name servers to ask, host:port with an IP address; without them those that "
        "this machine is set up with.",
    )
    grace_s: Annotated[Seconds, Field(le=2.5)] = Field(
        default=2.5,
        description="After a start Envoy is told the fleet when every source has spoken, or after "
        "this many seconds; so a restart of Coxswain takes no servers from it.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dns_min_s > self.dns_max_s:
            raise PydanticCustomError("order", "dns_min_s must not exceed dns_max_s")
        for server in self.nameservers:
            host = split_host_port(server)[0]
            if ":" not in host and not host.rpartition(".")[2].isdigit():
                raise PydanticCustomError("address", "a name server is named by its IP address")
        return self
