"""The subset hint of a gateway (endpoint picker protocol).

It stands in the filter metadata `envoy.lb.subset_hint`: a list, or one text with commas. What its
entries are is said in `extproc.core.fleet.subset_hints`.
"""

from typing import Final

from google.protobuf import struct_pb2

from extproc.core.fleet.subset_hints import Hint, SubsetHints
from extproc.header_names import SUBSET, SUBSET_NAMESPACE
from extproc.pb import external_processor_pb2 as pb

MAX_ENTRIES: Final = 4096
MAX_BYTES: Final = 256 * 1024
"""Bounds of a hint, for one that is new costs the picker time: about as many entries with IPv6
addresses fit."""
TOO_LONG: Final = (
    f"The gateway's subset hint is too long: at most {MAX_ENTRIES} entries and "
    f"{MAX_BYTES} bytes are allowed."
)


class HintError(ValueError):
    """An invalid hint; `str(error)` is for the client."""


def read_subset(request: pb.ProcessingRequest, subsets: SubsetHints) -> Hint | None:
    """The hint, None without one; an empty hint allows no endpoint.

    Raises `HintError` if it is too long.
    """
    if not request.HasField("metadata_context"):
        return None
    namespaces = request.metadata_context.filter_metadata
    if SUBSET_NAMESPACE not in namespaces or SUBSET not in namespaces[SUBSET_NAMESPACE].fields:
        return None
    value = namespaces[SUBSET_NAMESPACE].fields[SUBSET]
    if len(value.list_value.values) > MAX_ENTRIES:
        raise HintError(TOO_LONG)
    raw = value.SerializeToString()
    return subsets.find(raw) or subsets.add(raw, _entries(value, raw))


def _entries(value: struct_pb2.Value, raw: bytes) -> tuple[str, ...]:
    if len(raw) > MAX_BYTES or raw.count(b",") >= MAX_ENTRIES:
        raise HintError(TOO_LONG)
    if value.WhichOneof("kind") == "list_value":
        texts = [one.string_value for one in value.list_value.values]
    else:
        texts = [value.string_value]
    return tuple(entry for text in texts for part in text.split(",") if (entry := part.strip()))
