"""Claims about extproc/stream/envoy/duplex_body.py: every byte once, in order, and one end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy.duplex_body import MAX_CHUNK_BYTES, DuplexBody


def told(replies: list[pb.ProcessingResponse]) -> list[tuple[bytes, bool]]:
    """What goes out: the bytes of each chunk, and whether it is the last."""
    streamed = [r.request_body.response.body_mutation.streamed_response for r in replies]
    return [(one.body, one.end_of_stream) for one in streamed]


def test_what_comes_before_the_decision_is_held() -> None:
    relay = DuplexBody("request_body")
    assert relay.take(b"row ", is_last=False) == []
    assert relay.take(b"the boat", is_last=True) == []
    assert (relay.held_bytes, relay.has_end, relay.held()) == (12, True, b"row the boat")
    assert b"".join(body for body, _ in told(relay.open())) == b"row the boat"


def test_after_it_every_chunk_goes_on_at_once() -> None:
    relay = DuplexBody("request_body")
    relay.take(b"a", is_last=False)
    assert told(relay.open()) == [(b"a", False)]
    assert told(relay.take(b"b", is_last=False)) == [(b"b", False)]
    assert told(relay.take(b"c", is_last=True)) == [(b"c", True)]


def test_an_empty_last_chunk_is_the_end() -> None:
    relay = DuplexBody("request_body", is_open=True)
    assert told(relay.take(b"a", is_last=False)) == [(b"a", False)]
    assert told(relay.take(b"", is_last=False)) == []
    assert told(relay.take(b"", is_last=True)) == [(b"", True)]


def test_a_doubled_end_is_reported_once() -> None:
    relay = DuplexBody("request_body", is_open=True)
    assert told(relay.take(b"a", is_last=True)) == [(b"a", True)]
    assert relay.take(b"", is_last=True) == []
    assert relay.take(b"b", is_last=True) == [], "nothing comes after the end"


def test_a_doubled_end_while_it_is_held() -> None:
    relay = DuplexBody("request_body")
    relay.take(b"a", is_last=True)
    relay.take(b"", is_last=True)
    assert told(relay.open()) == [(b"a", True)]


def test_another_body_goes_out_in_place_of_the_held_one() -> None:
    relay = DuplexBody("request_body")
    relay.take(b"old", is_last=True)
    relay.replace(b"new one")
    assert told(relay.open()) == [(b"new one", True)]


@given(
    st.lists(st.integers(0, 3 * MAX_CHUNK_BYTES), min_size=1, max_size=5),
    st.integers(0, 5),
)
def test_chunks_of_any_size(sizes: list[int], opened_after: int) -> None:
    """Whenever it is opened, the same bytes come out, in chunks that gateways take."""
    body = bytes(range(256)) * (sum(sizes) // 256 + 1)
    relay = DuplexBody("request_body")
    out: list[tuple[bytes, bool]] = []
    start = 0
    for number, size in enumerate(sizes):
        if number == opened_after:
            out += told(relay.open())
        is_last = number == len(sizes) - 1
        out += told(relay.take(body[start : start + size], is_last=is_last))
        start += size
    if opened_after >= len(sizes):
        out += told(relay.open())
    assert b"".join(piece for piece, _ in out) == body[: sum(sizes)]
    assert all(len(piece) <= MAX_CHUNK_BYTES for piece, _ in out)
    assert [is_last for _, is_last in out] == [False] * (len(out) - 1) + [True]
