"""Pods of Kubernetes as endpoints: those of an InferencePool, of a selector, or of a Service."""

import re
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.settings.access import check_access
from extproc.settings.servers_section import ServersSettings
from extproc.settings.values import LIST

MAX_PORTS: Final = 8
"""As many as an InferencePool may have."""
OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def _api(text: str) -> str:
    parts = urlsplit(text.strip())
    is_plain = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise PydanticCustomError("url", "write https://host:port")
    return text.strip().rstrip("/")


def _object_name(text: str) -> str:
    if OBJECT_NAME.fullmatch(text) is None:
        raise PydanticCustomError("name", "a name has lower-case letters, digits, - and .")
    return text


def _namespace(text: str) -> str:
    if OBJECT_NAME.fullmatch(text) is None or "." in text:
        raise PydanticCustomError("name", "a namespace has lower-case letters, digits and -")
    return text


def _port(value: Any) -> str:
    text = str(value).strip()
    if isinstance(value, bool) or not (_is_port(text) or PORT_NAME.fullmatch(text)):
        raise PydanticCustomError("port", "write a port, 1 to 65535, or the name of one")
    return text


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536


ApiUrl = Annotated[str, AfterValidator(_api)]
"""Where an API server is: `https://host:port`."""

Port = Annotated[str, BeforeValidator(_port), Field(max_length=63)]
"""The number of a port, or its name."""

ObjectName = Annotated[str, Field(max_length=253), AfterValidator(_object_name)]
"""The name of an object of Kubernetes."""

Namespace = Annotated[str, Field(max_length=63), AfterValidator(_namespace)]


class KubernetesSettings(ServersSettings):
    """Pods that are endpoints while they are ready and do not terminate (docs/kubernetes.md). Give
    one of `pool`, `selector` and `service`."""

    pool: ObjectName | None = None
    """The name of an InferencePool: its selector says which pods, its target ports which ports."""
    selector: str | None = Field(default=None, min_length=1, max_length=1024)
    """A label selector, as of `kubectl get pods -l`; requires `ports`."""
    service: ObjectName | None = None
    """The name of a Service, whose EndpointSlices are followed."""
    ports: Annotated[tuple[Port, ...], LIST, Field(max_length=MAX_PORTS)] = ()
    """With `selector`: the ports of each pod, each an endpoint. With `service`: the names or
    numbers of its endpoints' ports; by default its only one."""
    namespace: Namespace | None = None
    """The namespace; by default discovery.kubernetes_namespace."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [one for one in (self.pool, self.selector, self.service) if one is not None]
        if len(given) != 1:
            raise PydanticCustomError("one_of", "give one of pool, selector and service")
        if self.pool is not None and self.ports:
            raise PydanticCustomError(
                "together", "an InferencePool has the ports: remove them here"
            )
        if self.selector is not None and not (self.ports and all(map(_is_port, self.ports))):
            raise PydanticCustomError("together", "selector needs ports: the numbers of the pods'")
        if self.tls and self.server_name is None:
            raise PydanticCustomError(
                "together", "with tls give server_name: a pod has no name that a certificate has"
            )
        check_access(self)
        return self

    @property
    def host(self) -> str:
        """What is followed, in place of a host."""
        return self.pool or self.service or self.selector or ""

    @property
    def address(self) -> str:
        """Its name in messages."""
        for kind in ("pool", "service", "selector"):
            if (text := getattr(self, kind)) is not None:
                return (
                    f"{kind} {text}"
                    if self.namespace is None
                    else (f"{kind} {text} in {self.namespace}")
                )
        return ""
