"""What Kubernetes' objects say about servers: Pods, InferencePools and EndpointSlices. Pure.

Ready, as the condition of a pod says it, and not terminating: only such a pod is an endpoint. An
object that lacks something is one that says nothing yet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from extproc.core.address import MAX_PORT, is_ip

ACTIVE_PORTS: Final = ("llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
"""Annotations with the ports of a pod that serve by now, `8000,8001`; the first one that is there
counts."""
MAX_TARGET_PORTS: Final = 8
SERVICE_LABEL: Final = "kubernetes.io/service-name"
"""Of an EndpointSlice."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a server listens, and the name of its pod, if it is known."""

    ip: str
    port: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that serves. `active_ports` is None where all of its ports do."""

    name: str
    ip: str
    active_ports: frozenset[int] | None = None

    def places(self, ports: Iterable[int]) -> list[Place]:
        """Of these ports, those that serve."""
        active = self.active_ports
        return [
            Place(self.ip, port, self.name) for port in ports if active is None or port in active
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What an InferencePool says: which pods, as a label selector, and which of their ports."""

    selector: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The ready endpoints of an EndpointSlice, and its ports by their names, which may be empty."""

    is_ipv6: bool
    pods: tuple[tuple[str, str], ...]
    """IP address and name of each."""
    ports: tuple[tuple[str, int], ...]


def read_pod(thing: Mapping[str, Any]) -> Pod | None:
    """The pod; None while it serves nothing."""
    metadata, status = _section(thing, "metadata"), _section(thing, "status")
    conditions = _sections(status, "conditions")
    is_ready = any(
        each.get("type") == "Ready" and each.get("status") == "True" for each in conditions
    )
    ip = status.get("podIP")
    if not is_ready or metadata.get("deletionTimestamp") or not (isinstance(ip, str) and is_ip(ip)):
        return None
    notes = _section(metadata, "annotations")
    said = next((notes[key] for key in ACTIVE_PORTS if key in notes), None)
    active = None if said is None else frozenset(_ports(str(said).split(",")))
    return Pod(name=str(metadata.get("name")), ip=ip, active_ports=active)


def read_pool(thing: Mapping[str, Any]) -> Pool | None:
    """The pool; None for one that selects nothing, or has no port."""
    spec = _section(thing, "spec")
    labels = _section(_section(spec, "selector"), "matchLabels")
    numbers = [each.get("number") for each in _sections(spec, "targetPorts")]
    ports = tuple(dict.fromkeys(_ports(numbers)))[:MAX_TARGET_PORTS]
    if not labels or not ports:
        return None
    return Pool(selector=",".join(f"{key}={labels[key]}" for key in sorted(labels)), ports=ports)


def read_slice(thing: Mapping[str, Any]) -> Slice | None:
    """The slice; None for one without IP addresses."""
    kind = thing.get("addressType")
    if kind not in ("IPv4", "IPv6"):
        return None
    pods = []
    for endpoint in _sections(thing, "endpoints"):
        conditions = _section(endpoint, "conditions")
        if conditions.get("ready") is False or conditions.get("terminating"):
            continue
        name = str(_section(endpoint, "targetRef").get("name") or "")
        ips = endpoint.get("addresses") or ()
        pods += [(ip, name) for ip in ips[:1] if isinstance(ip, str) and is_ip(ip)]
    ports = [
        (str(each.get("name") or ""), port)
        for each in _sections(thing, "ports")
        if each.get("protocol", "TCP") == "TCP"
        for port in _ports([each.get("port")])
    ]
    return Slice(is_ipv6=kind == "IPv6", pods=tuple(pods), ports=tuple(ports))


def places_of_slices(slices: Sequence[Slice], wanted: Sequence[str]) -> list[Place]:
    """The servers of a Service; `wanted` are names or numbers of ports, none for its only one.

    A Service of both families has each pod twice: the IPv4 addresses count then. Raises
    `ValueError` for several ports of which none was named.
    """
    filled = [each for each in slices if each.pods]
    filled = [each for each in filled if not each.is_ipv6] or filled
    found: set[Place] = set()
    for each in filled:
        ports = [(n, p) for n, p in each.ports if not wanted or n in wanted or str(p) in wanted]
        if not wanted and len(ports) > 1:
            names = ", ".join(name or str(port) for name, port in ports)
            raise ValueError(f"it has several ports ({names}): name those of the servers")
        found |= {Place(ip, port, pod) for ip, pod in each.pods for _, port in ports}
    return sorted(found)


def _section(thing: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = thing.get(key)
    return found if isinstance(found, dict) else {}


def _sections(thing: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = thing.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _ports(values: Iterable[object]) -> list[int]:
    """Those that are port numbers."""
    texts = [str(value).strip() for value in values]
    numbers = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) <= 5]
    return [number for number in numbers if 0 < number <= MAX_PORT]
