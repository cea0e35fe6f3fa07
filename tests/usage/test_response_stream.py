"""Claims about extproc/usage/response_stream.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from extproc.header_names import USAGE
from extproc.pb import external_processor_pb2 as pb
from extproc.transport import Call, CallHandler
from extproc.transport.status import INVALID_ARGUMENT, OK
from extproc.usage.counts import Tally
from extproc.usage.meter import UsageMeter
from extproc.usage.response_stream import PREFIX, ResponseStream, with_responses


class FakeCall:
    """The transport's side of a call."""

    is_over = False
    was_reset = False

    def __init__(self, *metadata: tuple[str, str | bytes]) -> None:
        self.metadata = metadata
        self.statuses: list[int] = []

    def send(self, message: bytes) -> None:
        raise AssertionError(f"nothing is said to Envoy, but {message!r}")

    def finish(self, status: int, text: str = "") -> None:
        assert not self.statuses, text
        self.statuses.append(status)

    def soon(self, function: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(function)

    def pause(self) -> None:
        raise AssertionError

    def resume(self) -> None:
        raise AssertionError


class Other:
    """The handler of a call that asks where a request goes."""

    def receive(self, message: bytes) -> None: ...
    def half_closed(self) -> None: ...
    def gone(self) -> None: ...


@pytest.fixture
def meter() -> UsageMeter:
    return UsageMeter(Tally(), time.monotonic, time.time, lambda _: "")


def open_(meter: UsageMeter, call: FakeCall, known: str = "e1") -> CallHandler:
    def ask(_: Call) -> CallHandler:
        return Other()

    return with_responses(ask, meter, lambda id_: id_ == known)(call)


def part(body: bytes, *, is_last: bool = False) -> bytes:
    request = pb.ProcessingRequest()
    request.response_body.body = body
    request.response_body.end_of_stream = is_last
    return request.SerializeToString()


def test_calls_without_the_header_ask_where_a_request_goes(meter: UsageMeter) -> None:
    assert isinstance(open_(meter, FakeCall(("traceparent", "00-1"))), Other)


def test_a_response_is_read_to_its_end_and_the_call_finished(meter: UsageMeter) -> None:
    call = FakeCall((USAGE, f"{PREFIX}e1"))
    stream = open_(meter, call)
    assert isinstance(stream, ResponseStream)
    response = meter.open("e1")
    stream.receive(part(b'data: {"usage":{"prompt_tokens":3,'))
    assert call.statuses == []
    stream.receive(part(b'"completion_tokens":4}}', is_last=True))
    assert call.statuses == [OK]
    assert response.is_whole
    assert response.tail.usage()[:2] == (3, 4)
    stream.receive(part(b"more"))
    stream.gone()


@pytest.mark.parametrize("end", ["half_closed", "gone"])
def test_a_response_that_ends_early_is_not_whole(meter: UsageMeter, end: str) -> None:
    call = FakeCall((USAGE, f"{PREFIX}e1"))
    stream = open_(meter, call)
    stream.receive(part(b"data: {}"))
    getattr(stream, end)()
    response = meter.open("e1")
    assert response.is_closed and not response.is_whole
    assert call.statuses == ([OK] if end == "half_closed" else [])


@pytest.mark.parametrize("id_", ["exchange=", "", "exchange=of-another-picker"])
def test_a_response_of_nobodys_exchange_is_not_read(meter: UsageMeter, id_: str) -> None:
    """A rejection has no exchange in its metadata."""
    call = FakeCall((USAGE, id_))
    stream = open_(meter, call)
    assert call.statuses == [OK]
    stream.receive(part(b"x", is_last=True))
    assert len(meter) == 0


def test_what_is_no_message_ends_the_call(meter: UsageMeter) -> None:
    call = FakeCall((USAGE, f"{PREFIX}e1"))
    stream = open_(meter, call)
    stream.receive(b"\xff\xff")
    assert call.statuses == [INVALID_ARGUMENT]
    assert meter.open("e1").is_closed
