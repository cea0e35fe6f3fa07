"""Claims about extproc/transport/grpc_connection.py, with python-hyper's h2 as
the client."""

from __future__ import annotations

import base64
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.transport import Call, CallHandler
from extproc.transport.http2.limits import Limits
from extproc.transport.limits import TransportLimits
from tests.transport.peer import HEADERS, Echo, Pair

SIZES = st.one_of(st.integers(0, 40), st.integers(0, 20_000))


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 3), SIZES), max_size=8),
    st.lists(st.integers(1, 20_000), max_size=30),
)
def test_what_arrives_is_what_was_sent(messages: list[tuple[int, int]], pieces: list[int]) -> None:
    """Whatever the sizes of the messages, their order over four streams, and the pieces in which
    the bytes arrive."""
    pair = Pair()
    streams = [pair.request() for _ in range(4)]
    pair.carry()
    sent: dict[int, list[bytes]] = {stream_id: [] for stream_id in streams}
    unsent: dict[int, bytes] = dict.fromkeys(streams, b"")
    for number, (which, size) in enumerate(messages):
        message = bytes([number % 251]) * size
        stream_id = streams[which]
        sent[stream_id].append(message)
        unsent[stream_id] += b"\0" + size.to_bytes(4, "big") + message
    while any(unsent.values()):
        for stream_id, data in unsent.items():
            room = min(
                pair.client.local_flow_control_window(stream_id),
                pair.client.max_outbound_frame_size,
                len(data),
            )
            if room:
                pair.client.send_data(stream_id, data[:room])
                unsent[stream_id] = data[room:]
        pair.carry(pieces)
    for stream_id in streams:
        pair.client.end_stream(stream_id)
    pair.carry(pieces)
    for stream_id, handler in zip(streams, pair.handlers, strict=True):
        answer = pair.answers[stream_id]
        assert handler.received == answer.messages == sent[stream_id]
        assert answer.is_ended and answer.status == "0"
    assert len(pair.server) == 0 and pair.server.held_bytes == 0
    assert pair.server.http2.streams == {}


def test_a_client_that_reads_slowly_is_read_slowly() -> None:
    """What it does not take is not asked for again and again: its messages wait at its side."""
    pair = Pair()
    pair.reads = False
    stream_id = pair.request()
    pair.carry()
    for _ in range(100):
        if pair.client.local_flow_control_window(stream_id) < 16_389:
            break
        pair.say(stream_id, b"x" * 16_379)
        pair.carry()
    (handler,) = pair.handlers
    assert len(handler.received) <= 5, "the client's window has 65,535 bytes"
    assert pair.client.local_flow_control_window(stream_id) < 16_389
    window = 65_535
    pair.client.increment_flow_control_window(1 << 24)
    pair.client.increment_flow_control_window(1 << 24, stream_id)
    pair.carry()
    assert len(pair.answers[stream_id].messages) > window // 16_384 + 5
    assert pair.server.held_bytes == 0


def test_a_paused_call_is_not_read() -> None:
    """Its messages wait, within the window, and come with `resume`; so does the half-close."""
    pair = Pair()
    stream_id = pair.request()
    pair.carry()
    (handler,) = pair.handlers
    handler.call.pause()
    pair.say(stream_id, b"one")
    pair.say(stream_id, b"two")
    pair.client.end_stream(stream_id)
    pair.carry()
    assert (handler.received, handler.is_half_closed) == ([], False)
    assert pair.server.held_bytes == 2 * (5 + 3)
    handler.call.resume()
    assert (handler.received, handler.is_half_closed) == ([b"one", b"two"], True)
    assert pair.server.held_bytes == 0


@pytest.mark.parametrize("size", [300_000, 1_000_000, 5_000_000])
def test_a_message_larger_than_the_window(size: int) -> None:
    """The rest of a message is allowed at once."""
    pair = Pair()
    stream_id = pair.request()
    pair.carry()
    data = b"\0" + size.to_bytes(4, "big") + b"y" * size
    rounds = 0
    while data:
        rounds += 1
        while data:
            room = min(
                pair.client.local_flow_control_window(stream_id),
                pair.client.max_outbound_frame_size,
            )
            if not room:
                break
            pair.client.send_data(stream_id, data[:room])
            data = data[room:]
        pair.carry()
    assert [len(message) for message in pair.handlers[0].received] == [size]
    assert rounds <= 2, "one window update for the message"


def rejected(pair: Pair, headers: list[tuple[str, str]] | None = None) -> tuple[str | None, str]:
    stream_id = pair.request(headers)
    pair.carry()
    answer = pair.answers[stream_id]
    assert pair.goaway is None
    return answer.status, {**answer.headers, **answer.trailers}.get("grpc-message", "")


def changed(name: str, value: str) -> list[tuple[str, str]]:
    return [(key, value if key == name else old) for key, old in HEADERS]


def test_calls_that_are_not_served() -> None:
    """Each is answered in words, and the connection goes on."""
    pair = Pair()
    status, text = rejected(pair, changed(":path", "/no/Such"))
    assert (status, "not served" in text) == ("12", True)
    status, text = rejected(pair, [*HEADERS, ("grpc-encoding", "gzip")])
    assert (status, "compressed" in text) == ("12", True)
    status, text = rejected(pair, [*HEADERS, ("grpc-timeout", "soon")])
    assert (status, "grpc-timeout" in text) == ("13", True)
    for foreign in (changed("content-type", "text/html"), changed(":method", "GET")):
        stream_id = pair.request(foreign)
        pair.carry()
        assert pair.answers[stream_id].headers[":status"] == "415"
        assert pair.answers[stream_id].data == b"This port speaks gRPC.\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\1\0\0\0\1x", "13"),
        (b"\0\xff\xff\xff\xff", "8"),
        (b"\0\0\0\0\1x\1\0\0\0\1x", "13"),
    ],
)
def test_a_message_that_cannot_be_read_ends_its_call(
    data: bytes, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Never the connection: the other call goes on."""
    pair = Pair()
    bad, good = pair.request(), pair.request()
    pair.client.send_data(bad, data)
    pair.carry()
    assert pair.answers[bad].status == status
    assert pair.handlers[0].is_gone
    pair.say(good, b"hello")
    pair.carry()
    assert pair.answers[good].messages == [b"hello"]
    assert len(caplog.records) == 1


def test_all_that_is_held_together_is_bounded() -> None:
    """The call whose message is one too many is ended, the others are kept."""
    pair = Pair(TransportLimits(held_bytes=100_000))
    streams = [pair.request() for _ in range(3)]
    for stream_id in streams:
        pair.client.send_data(stream_id, b"\0" + (60_000).to_bytes(4, "big") + b"z" * 15_000)
        pair.client.send_data(stream_id, b"z" * 15_000)
        pair.client.send_data(stream_id, b"z" * 10_000)
        pair.carry()
    assert [pair.answers[stream_id].status for stream_id in streams] == [None, None, "8"]
    assert pair.server.held_bytes == 2 * 40_005


def test_a_whole_message_beyond_the_limit_is_rejected() -> None:
    """As one that arrives in parts; one of the limit's size is not."""
    pair = Pair(TransportLimits(message_bytes=100))
    fits, exceeds = pair.request(), pair.request()
    pair.say(fits, b"x" * 100)
    pair.say(exceeds, b"x" * 101)
    pair.carry()
    assert pair.answers[fits].messages == [b"x" * 100]
    assert pair.answers[exceeds].status == "8"


class Broken(Echo):
    """A service with a bug."""

    def receive(self, message: bytes) -> None:
        raise RuntimeError("a bug")

    def gone(self) -> None:
        super().gone()
        raise RuntimeError("another one")


def test_an_exception_ends_one_call(caplog: pytest.LogCaptureFixture) -> None:
    """With INTERNAL, without its text, and with a log line."""
    caplog.set_level(logging.ERROR)
    broken: list[Broken] = []
    pair = Pair()

    def opened(call: Call) -> CallHandler:
        broken.append(Broken(call))
        return broken[-1]

    pair.server._table["/test/Broken"] = opened
    bad, good = pair.request(changed(":path", "/test/Broken")), pair.request()
    pair.say(bad, b"x")
    pair.say(good, b"hello")
    pair.carry()
    assert pair.answers[bad].status == "13"
    assert "bug" not in str(pair.answers[bad].headers)
    assert broken[0].is_gone and not broken[0].call.was_reset
    assert pair.answers[good].messages == [b"hello"]
    assert len(caplog.records) == 2


def test_a_call_that_cannot_be_opened(caplog: pytest.LogCaptureFixture) -> None:
    def opened(call: Call) -> CallHandler:
        raise RuntimeError("a bug")

    pair = Pair(table={"/test/Echo": opened})
    assert rejected(pair) == ("13", "internal error")
    assert len(pair.server) == 0
    assert len(caplog.records) == 1


def test_a_reset_is_a_loss() -> None:
    """The handler hears of it once; what it sends then has no effect."""
    pair = Pair()
    stream_id = pair.request()
    pair.say(stream_id, b"one")
    pair.carry()
    pair.client.reset_stream(stream_id)
    pair.carry()
    (handler,) = pair.handlers
    assert handler.is_gone and handler.call.is_over and handler.call.was_reset
    handler.call.send(b"late")
    handler.call.finish(0)
    assert pair.server.http2.output.take() == b""


def test_who_leaves_at_once_costs_no_call() -> None:
    """A stream that is opened and reset in one read (rapid reset) never reaches the service."""
    pair = Pair()
    for _ in range(50):
        stream_id = pair.request()
        pair.client.reset_stream(stream_id)
    pair.carry()
    assert pair.handlers == []
    assert pair.server.http2.streams == {}


def test_a_lost_connection_ends_all_its_calls() -> None:
    pair = Pair()
    for _ in range(3):
        pair.request()
    pair.carry()
    pair.server.lost()
    assert [handler.is_gone for handler in pair.handlers] == [True] * 3
    assert not any(handler.call.was_reset for handler in pair.handlers)
    assert len(pair.server) == 0


def test_a_deadline() -> None:
    """The call ends for its client and for the service."""
    pair = Pair()
    stream_id = pair.request([*HEADERS, ("grpc-timeout", "250m")])
    pair.carry()
    ((delay_s, expire),) = pair.timers.due
    assert delay_s == pytest.approx(0.25)
    assert callable(expire)
    expire()
    pair.carry()
    assert pair.answers[stream_id].status == "4"
    assert pair.handlers[0].is_gone and not pair.handlers[0].call.was_reset


def test_metadata() -> None:
    """Text as text, `-bin` as bytes; HTTP/2's own headers are no metadata."""
    pair = Pair()
    value = base64.b64encode(b"\0\xff\1").decode().rstrip("=")
    pair.request([*HEADERS, ("x-word", "one"), ("x-bytes-bin", value), ("x-odd-bin", "?")])
    pair.carry()
    metadata = dict(pair.handlers[0].call.metadata)
    assert metadata["x-word"] == "one"
    assert metadata["x-bytes-bin"] == b"\0\xff\1"
    assert ":path" not in metadata


def test_a_status_text_of_any_kind() -> None:
    """It is encoded as gRPC wants it, and bounded."""
    pair = Pair()
    stream_id = pair.request()
    pair.carry()
    pair.handlers[0].call.finish(3, "no: 100 % ä\n" + "x" * 5_000)
    pair.carry()
    answer = pair.answers[stream_id]
    text = {**answer.headers, **answer.trailers}["grpc-message"]
    assert text.startswith("no: 100 %25 %C3%A4%0A")
    assert len(text) < 3_100


def test_streams_are_bounded() -> None:
    """One too many is refused in a way that says: it was not processed."""
    pair = Pair(TransportLimits(http2=Limits(streams=3)))
    streams = [pair.request() for _ in range(4)]
    pair.carry()
    assert [pair.answers[stream_id].reset for stream_id in streams] == [None, None, None, 7]
    assert len(pair.handlers) == 3
