"""Connections to the data plane's port: any bytes or frames, in any pieces. Nothing is raised,
nothing is kept of what has ended, and the service hears of each call's end."""

from collections.abc import Callable

from extproc.transport import Call, CallHandler
from extproc.transport.grpc_connection import GrpcConnection
from extproc.transport.http2.frames import PREFACE, frame, settings
from extproc.transport.http2.limits import Limits
from extproc.transport.limits import TransportLimits
from rigs.fuzz.reader import Reader

LIMITS = TransportLimits(
    message_bytes=4_096, held_bytes=16_384, http2=Limits(streams=8, chores=50, resets=20)
)
FLAGS = (0, 1, 4, 5, 8, 0x20, 0x0D, 0xFF)
OPENING = b"\x83\x86\x44\x02/a\x0f\x10\x10application/grpc"
"""`:method: POST`, `:scheme: http`, `:path: /a` and the content type."""
MESSAGE = b"\0\0\0\0\3abc"


class _Timer:
    def cancel(self) -> None:
        """Nothing waits."""


class _Handler:
    """Echoes; pauses and resumes as the input says."""

    def __init__(self, call: Call, reader: Reader) -> None:
        self._call = call
        self._reader = reader
        self.ends = 0

    def receive(self, message: bytes) -> None:
        assert not self.ends
        self._call.send(message)
        if self._reader.number(8) == 1:
            self._call.pause()
        if self._reader.number(8) == 1:
            self._call.finish(self._reader.number(17), self._reader.text())
            self.ends += 1

    def half_closed(self) -> None:
        assert not self.ends
        self._call.finish(0)
        self.ends += 1

    def gone(self) -> None:
        self.ends += 1
        assert self.ends == 1


def check(data: bytes) -> None:
    reader = Reader(data)
    handlers: list[_Handler] = []
    calls: list[Call] = []

    def opened(call: Call) -> CallHandler:
        calls.append(call)
        handlers.append(_Handler(call, reader))
        return handlers[-1]

    connection = GrpcConnection({"/a": opened}, LIMITS, 0.0, _nothing, _never, _dropped)
    if not reader.flag():
        connection.receive(PREFACE + settings({}), 0.0)
    now = 0.0
    while reader and not connection.http2.failure:
        now += 0.001 * reader.number(8)
        connection.receive(_bytes(reader), now)
        for call in calls:
            if reader.number(4) == 1:
                call.resume()
        assert len(connection.http2.streams) <= LIMITS.http2.streams
        assert 0 <= connection.held_bytes <= LIMITS.held_bytes
        connection.http2.output.take()
    connection.lost()
    assert len(connection) == connection.held_bytes == 0
    assert all(handler.ends == 1 for handler in handlers)


def _bytes(reader: Reader) -> bytes:
    """Some bytes, or a frame that looks like one of a client."""
    if reader.number(4) == 3:
        return reader.few()
    kind, flags = reader.number(11), reader.choice(FLAGS)
    payload = reader.choice((OPENING, MESSAGE, b"", bytes(4), bytes(8), b"\0\0\0\1"))
    return frame(kind, flags, reader.number(12), payload if reader.flag() else reader.few())


def _nothing() -> None:
    """What is to be sent is taken anyway."""


def _dropped(_function: Callable[[], None]) -> None:
    """No handler here defers anything."""


def _never(_delay_s: float, _function: Callable[[], None]) -> _Timer:
    return _Timer()
