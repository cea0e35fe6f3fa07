"""Claims about extproc/transport/http2/connection.py: what h2spec does not ask."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.transport.http2.connection import Connection
from extproc.transport.http2.events import DataReceived, StreamOpened
from extproc.transport.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    SETTINGS,
    frame,
    rst_stream,
    settings,
)
from extproc.transport.http2.limits import Limits

REQUEST = b"\x83\x86\x44\x01/\x0f\x10\x10application/grpc"
"""`:method: POST`, `:scheme: http`, `:path: /` and the content type."""
ENHANCE_YOUR_CALM = 11


def connection(limits: Limits | None = None) -> Connection:
    """One whose peer has sent its preface."""
    made = Connection(limits or Limits(), 0.0)
    assert made.receive(PREFACE + settings({}), 0.0) == []
    made.output.take()
    return made


def goaway_code(output: bytes) -> int | None:
    """The error code of the last frame, if it is a GOAWAY."""
    code, at = None, 0
    while at < len(output):
        size = int.from_bytes(output[at : at + 3], "big")
        if output[at + 3] == GOAWAY:
            code = int.from_bytes(output[at + 13 : at + 17], "big")
        at += 9 + size
    return code


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_any_bytes(parts: list[bytes]) -> None:
    """Whatever comes: no exception, and after a failure nothing more."""
    made = connection()
    for part in parts:
        made.receive(part, 1.0)
        if made.failure:
            assert goaway_code(made.output.take()) is not None
            assert made.receive(part, 1.0) == []
            return


FRAMES = st.builds(
    frame,
    st.integers(0, 10),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x25, 0xFF]),
    st.sampled_from([0, 1, 2, 3, 5, 7]),
    st.one_of(st.just(REQUEST), st.binary(max_size=40)),
)


@given(st.lists(FRAMES, max_size=30), st.lists(st.integers(1, 60), max_size=40))
def test_any_frames_in_any_pieces(frames: list[bytes], sizes: list[int]) -> None:
    """The pieces in which bytes arrive make no difference."""
    data = b"".join(frames)
    whole, pieces = connection(), connection()
    events = whole.receive(data, 1.0)
    others, at = [], 0
    for size in sizes:
        others += pieces.receive(data[at : at + size], 1.0)
        at += size
    others += pieces.receive(data[at:], 1.0)
    assert (whole.failure, set(whole.streams)) == (pieces.failure, set(pieces.streams))
    assert [type(one) for one in events if not isinstance(one, DataReceived)] == [
        type(one) for one in others if not isinstance(one, DataReceived)
    ]
    assert whole.output.take() == pieces.output.take()


FLOODS = {
    "ping": frame(PING, 0, 0, bytes(8)),
    "settings": frame(SETTINGS, 0, 0, b""),
    "priority": frame(PRIORITY, 0, 1, (3).to_bytes(4, "big") + b"\0"),
    "empty data": frame(DATA, 0, 1, b""),
    "unknown": frame(0xBB, 0, 0, b""),
    "data of a closed stream": frame(DATA, 0, 3, b"x"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_end_the_connection(name: str) -> None:
    """As many as the limit at once, and as many a second; then ENHANCE_YOUR_CALM."""
    made = connection(Limits(chores=100, chores_per_s=10.0))
    made.receive(frame(HEADERS, END_HEADERS, 1, REQUEST), 0.0)
    made.receive(frame(HEADERS, END_HEADERS, 3, REQUEST) + rst_stream(3, 8), 0.0)
    made.receive(FLOODS[name] * 95, 0.0)
    assert not made.failure
    made.receive(FLOODS[name] * 10, 0.0)
    assert "without content" in made.failure
    assert goaway_code(made.output.take()) == ENHANCE_YOUR_CALM


def test_a_rate_that_is_allowed_goes_on_for_ever() -> None:
    made = connection(Limits(chores=100, chores_per_s=10.0))
    for second in range(100):
        made.receive(FLOODS["ping"] * 9, float(second))
    assert not made.failure


def test_rapid_reset() -> None:
    """Streams that are opened and reset: bounded by their number a second."""
    made = connection(Limits(resets=50, resets_per_s=1.0))
    for number in range(60):
        stream_id = 2 * number + 1
        made.receive(
            frame(HEADERS, END_HEADERS, stream_id, REQUEST) + rst_stream(stream_id, 8), 0.0
        )
    assert made.failure == "too many resets"
    assert made.streams == {} or len(made.streams) == 1


def test_a_header_block_without_end() -> None:
    """Neither many small continuations nor few large ones are collected."""
    for part, count in ((b"\0", 100), (b"\0" * 16_000, 20)):
        made = connection()
        made.receive(frame(HEADERS, 0, 1, REQUEST), 0.0)
        for _ in range(count):
            made.receive(frame(CONTINUATION, 0, 1, part), 0.0)
        assert made.failure == "too large headers"
        assert goaway_code(made.output.take()) == ENHANCE_YOUR_CALM


def test_data_beyond_the_windows() -> None:
    """Of a stream: that stream ends. Of the connection: the connection does."""
    limits = Limits(stream_window_bytes=65_535, connection_window_bytes=65_535)
    made = connection(limits)
    made.receive(frame(HEADERS, END_HEADERS, 1, REQUEST), 0.0)
    for _ in range(5):
        made.receive(frame(DATA, 0, 1, b"x" * 16_000), 0.0)
    assert not made.failure and made.streams == {}
    hostile = connection(Limits(connection_window_bytes=65_535))
    hostile.receive(frame(HEADERS, END_HEADERS, 1, REQUEST), 0.0)
    hostile.receive(frame(DATA, 0, 1, b"x" * 70_000), 0.0)
    assert hostile.failure == "more data than the window allows"


def test_a_long_frame_arrives_in_parts() -> None:
    """Data is handed over as it comes; nothing of it is collected here."""
    made = connection()
    made.receive(frame(HEADERS, END_HEADERS, 1, REQUEST), 0.0)
    data = frame(DATA, 0, 1, b"x" * 200_000)
    events = [
        event
        for at in range(0, len(data), 1_000)
        for event in made.receive(data[at : at + 1_000], 0.0)
    ]
    assert len(events) > 150
    assert sum(len(event.data) for event in events if isinstance(event, DataReceived)) == 200_000
    assert not made._unparsed


def test_a_leaving_server_accepts_no_more_streams() -> None:
    """Those that cross its GOAWAY are refused: their requests may be sent elsewhere."""
    made = connection()
    assert isinstance(made.receive(frame(HEADERS, END_HEADERS, 1, REQUEST), 0.0)[0], StreamOpened)
    made.announce_end()
    assert made.receive(frame(HEADERS, END_HEADERS, 3, REQUEST), 0.0) == []
    assert set(made.streams) == {1}
