"""A gateway's hint which endpoints may serve a request (the endpoint picker protocol's subset).

It stands in the filter metadata `envoy.lb.subset_hint`: a list, or one text with commas. An
entry is `ip:port`, or an IP alone for all its ports. What names nothing counts for nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from extproc.core.address import Address, AddressError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from extproc.pb import external_processor_pb2 as pb

NAMESPACE: Final = "envoy.lb.subset_hint"
KEY: Final = "x-gateway-destination-endpoint-subset"
_ANY_PORT: Final = 1
"""Stands for the port while the host of an entry without one is read."""


def read_subset(request: pb.ProcessingRequest) -> tuple[str, ...] | None:
    """The entries of the hint, None without one; an empty hint allows nobody."""
    if not request.HasField("metadata_context"):
        return None
    namespaces = request.metadata_context.filter_metadata
    if NAMESPACE not in namespaces or KEY not in namespaces[NAMESPACE].fields:
        return None
    value = namespaces[NAMESPACE].fields[KEY]
    if value.WhichOneof("kind") == "list_value":
        texts = [one.string_value for one in value.list_value.values]
    else:
        texts = [value.string_value]
    return tuple(entry for text in texts for entry in _entries(text))


def allowed_by(subset: Iterable[str], fleet: Iterable[Address]) -> frozenset[Address]:
    """Which addresses of the fleet the hint allows. O(entries + fleet)."""
    whole: set[Address] = set()
    hosts: set[str] = set()
    for entry in subset:
        try:
            whole.add(Address.parse(entry))
        except AddressError:
            host = _host(entry)
            if host is not None:
                hosts.add(host)
    return frozenset(a for a in fleet if a in whole or a.host in hosts)


def _entries(text: str) -> Iterator[str]:
    return (entry for part in text.split(",") if (entry := part.strip()))


def _host(entry: str) -> str | None:
    try:
        return Address.of(entry.removeprefix("[").removesuffix("]"), _ANY_PORT).host
    except AddressError:
        return None
