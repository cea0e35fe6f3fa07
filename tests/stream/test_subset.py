"""Claims about extproc/stream/subset.py."""

from __future__ import annotations

import pytest
from google.protobuf.struct_pb2 import Value

from extproc.core.address import Address
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.subset import KEY, NAMESPACE, allowed_by, read_subset

A, B, C = Address("10.0.0.1", 8080), Address("10.0.0.2", 8080), Address("10.0.0.2", 8081)
V6 = Address("2001:db8::1", 8080)
FLEET = (A, B, C, V6)


def request(hint: object) -> pb.ProcessingRequest:
    message = pb.ProcessingRequest()
    fields = message.metadata_context.filter_metadata[NAMESPACE].fields
    if isinstance(hint, list):
        fields[KEY].list_value.extend(hint)
    elif isinstance(hint, str):
        fields[KEY].string_value = hint
    else:
        fields[KEY].CopyFrom(Value(number_value=1))
    return message


def test_no_hint_allows_everybody() -> None:
    assert read_subset(pb.ProcessingRequest()) is None
    other = pb.ProcessingRequest()
    other.metadata_context.filter_metadata["envoy.lb"].fields["x"].string_value = "y"
    assert read_subset(other) is None
    empty = pb.ProcessingRequest()
    empty.metadata_context.filter_metadata[NAMESPACE].fields["other"].string_value = "y"
    assert read_subset(empty) is None


@pytest.mark.parametrize(
    ("hint", "allowed"),
    [
        (["10.0.0.1:8080", "10.0.0.2:8081"], {A, C}),
        ("10.0.0.1:8080,10.0.0.2:8081", {A, C}),
        (" 10.0.0.1:8080 , 10.0.0.2:8081 ,", {A, C}),
        (["10.0.0.1:8080,10.0.0.2:8080"], {A, B}),
        (["10.0.0.2"], {B, C}),
        ("10.0.0.2", {B, C}),
        (["[2001:db8::1]:8080"], {V6}),
        (["2001:db8::1"], {V6}),
        (["[2001:DB8:0::1]"], {V6}),
        (["10.9.9.9:1"], set()),
        (["gpu-1:8080", "nonsense", "10.0.0.1:99999", "10.0.0.1:8080"], {A}),
        ([], set()),
        ("", set()),
        (7, set()),
    ],
)
def test_hints(hint: object, allowed: set[Address]) -> None:
    """As a list or a text, with ports or without; one that names nobody allows nobody."""
    subset = read_subset(request(hint))
    assert subset is not None
    assert allowed_by(subset, FLEET) == allowed
