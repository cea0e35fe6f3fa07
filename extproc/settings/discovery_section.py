"""Sources of endpoints besides the `endpoints` list: a file, DNS and Kubernetes."""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.kubernetes.service_account import FOLDER
from extproc.settings.access import check_access
from extproc.settings.kubernetes_section import ApiUrl, KubernetesSettings, Namespace
from extproc.settings.section import Section
from extproc.settings.servers_section import ServersSettings
from extproc.settings.values import (
    LIST,
    File,
    Reloadable,
    Seconds,
    SomeSeconds,
    Target,
    Whole,
    split_host_port,
)

DNS_URL: Final = re.compile(r"(dns|srv)://([^/]+)/?")


class DnsSettings(ServersSettings):
    """A name whose addresses are endpoints. `dns://name:port` is short for type a, `srv://name`
    for type srv."""

    name: str = Field(
        min_length=1, max_length=253, pattern=r"^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9.])?$"
    )
    """The name to look up. With a dot at the end, the search list is not applied."""
    port: Annotated[Whole, Field(ge=1, le=65_535)] | None = None
    """The port of all its servers; required for type a."""
    type: Literal["a", "srv"] = "a"
    """`a` takes the A and AAAA records, `srv` the hosts and ports of SRV records."""

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
            raise PydanticCustomError("dns", "SRV records contain the port; remove it here")
        if self.name.rstrip(".").rpartition(".")[2].isdigit():
            raise PydanticCustomError("dns", "this is an IP address; list it under `endpoints`")
        check_access(self)
        return self

    @property
    def host(self) -> str:
        """The name that is looked up."""
        return self.name

    @property
    def address(self) -> str:
        """Its name in messages."""
        return self.name if self.port is None else f"{self.name}:{self.port}"


class DiscoverySettings(Section):
    """Further sources of endpoints. They can be combined; one address is one endpoint."""

    file: Reloadable[File | None] = None
    """A YAML or JSON file with a list `endpoints` as in the settings. A change applies within a
    second."""
    dns: Annotated[Reloadable[tuple[DnsSettings, ...]], LIST] = ()
    """The DNS names to resolve: dns://name:port or srv://name each, or sections with the keys
    below."""
    dns_min_s: Reloadable[SomeSeconds] = 1.0
    """The shortest time in seconds between two lookups of a name, even if its TTL is shorter."""
    dns_max_s: Reloadable[SomeSeconds] = 5.0
    """The longest, even if its TTL is longer."""
    nameservers: Annotated[Reloadable[tuple[Target, ...]], LIST] = ()
    """The name servers, host:port with an IP address; by default the system's."""
    kubernetes: Annotated[Reloadable[tuple[KubernetesSettings, ...]], LIST] = ()
    """The pods of Kubernetes to follow: sections with the keys below."""
    kubernetes_namespace: Reloadable[Namespace | None] = None
    """The namespace of entries without one; by default the pod's."""
    kubernetes_api: ApiUrl | None = None
    """The API server, https://host:port; by default that of the pod's cluster."""
    kubernetes_folder: str = FOLDER
    """The folder with the service account's token, ca.crt and namespace."""
    kubernetes_objectives: bool = False
    """Whether the InferenceObjectives and InferenceModelRewrites of the pools in `kubernetes` are
    objectives and splits (docs/kubernetes.md). The settings go before them."""
    critical_priority: Reloadable[Whole] = 1
    """An InferenceObjective with this priority or a higher one is critical."""
    sheddable_priority: Reloadable[Whole] = -1
    """An InferenceObjective with this priority or a lower one is sheddable."""
    grace_s: Annotated[Seconds, Field(le=2.5)] = 2.5
    """After a start, Coxswain publishes the fleet to Envoy when every source has reported, or after
    this many seconds, so a restart removes no servers from Envoy."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sheddable_priority >= self.critical_priority:
            raise PydanticCustomError("order", "sheddable_priority must be below critical_priority")
        if self.dns_min_s > self.dns_max_s:
            raise PydanticCustomError("order", "dns_min_s must not exceed dns_max_s")
        for server in self.nameservers:
            host = split_host_port(server)[0]
            if ":" not in host and not host.rpartition(".")[2].isdigit():
                raise PydanticCustomError(
                    "address", "give the IP address of a name server, not its name"
                )
        return self
