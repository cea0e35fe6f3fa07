"""Claims about extproc/stream/request/subset.py."""

from __future__ import annotations

import pytest
from google.protobuf.struct_pb2 import Value

from extproc.core.address import Address
from extproc.core.fleet.subset_hints import SubsetHints
from extproc.header_names import SUBSET, SUBSET_NAMESPACE
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.request.subset import MAX_BYTES, MAX_ENTRIES, HintError, read_subset
from tests.core.fleet.test_subset_hints import fleet_of
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import ExchangeHarness

A, B, C = Address("10.0.0.1", 8080), Address("10.0.0.2", 8080), Address("10.0.0.2", 8081)
V6 = Address("2001:db8::1", 8080)
SUBSETS = SubsetHints(fleet_of(A, B, C, V6))


def request(hint: object) -> pb.ProcessingRequest:
    message = pb.ProcessingRequest()
    fields = message.metadata_context.filter_metadata[SUBSET_NAMESPACE].fields
    if isinstance(hint, list):
        fields[SUBSET].list_value.extend(hint)
    elif isinstance(hint, str):
        fields[SUBSET].string_value = hint
    else:
        fields[SUBSET].CopyFrom(Value(number_value=1))
    return message


def test_no_hint_allows_everybody() -> None:
    assert read_subset(pb.ProcessingRequest(), SUBSETS) is None
    other = pb.ProcessingRequest()
    other.metadata_context.filter_metadata["envoy.lb"].fields["x"].string_value = "y"
    assert read_subset(other, SUBSETS) is None
    empty = pb.ProcessingRequest()
    empty.metadata_context.filter_metadata[SUBSET_NAMESPACE].fields["other"].string_value = "y"
    assert read_subset(empty, SUBSETS) is None


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
    found = read_subset(request(hint), SUBSETS)
    assert found is not None
    assert SUBSETS.allowed(found) == allowed


LONGEST = [f"[2001:db8::{number:x}]:8080" for number in range(MAX_ENTRIES)]


def test_a_hint_may_name_a_large_fleet() -> None:
    for hint in (LONGEST, ",".join(LONGEST), [",".join(LONGEST)]):
        assert read_subset(request(hint), SUBSETS) is not None


@pytest.mark.parametrize(
    "hint",
    [
        [*LONGEST, "10.0.0.1"],
        ",".join([*LONGEST, "10.0.0.1"]),
        [",".join(LONGEST), ",10.0.0.1"],
        "," * MAX_ENTRIES,
        "x" * MAX_BYTES,
        ["10.0.0.1"] * 100_000,
    ],
)
def test_a_hint_that_is_too_long_is_none(hint: list[str] | str) -> None:
    """Its client is told, and nothing of it is kept."""
    before = len(SUBSETS)
    with pytest.raises(HintError, match="4096 entries and 262144 bytes"):
        read_subset(request(hint), SUBSETS)
    assert len(SUBSETS) == before
    harness = ExchangeHarness(4)
    asked = envoy.request_headers()
    asked.metadata_context.CopyFrom(request(hint).metadata_context)
    (rejected,) = harness.feed(harness.exchange(), asked)
    assert envoy.rejection(rejected) == (400, "bad-request")
    assert b"too long" in rejected.immediate_response.body


def test_a_hint_that_comes_again_is_understood_once() -> None:
    """Also after others came: the same set of addresses, not an equal one."""
    harness = ExchangeHarness(4)
    for hint in (["10.0.0.1", "10.9.9.9"], ["10.0.0.1"], ["10.0.0.1", "10.9.9.9"]):
        asked = envoy.request_headers()
        asked.metadata_context.CopyFrom(request(hint).metadata_context)
        harness.feed(harness.exchange(), asked)
    first, other, again = (one.allowed for one in harness.asked)
    assert first is again and first == other
    assert len(harness.fleet.dispatcher.state.subset_hints) == 2
