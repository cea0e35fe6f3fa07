"""Claims about extproc/transport/protocol.py, with a transport that keeps what is written."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, cast

import h2.config
import h2.connection
import pytest

from extproc.transport import Call, CallHandler
from extproc.transport.limits import TransportLimits
from extproc.transport.messages import prefix
from extproc.transport.protocol import Connections, Http2Protocol
from tests.transport.peer import HEADERS, Echo


class Written:
    """An asyncio transport without a socket."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def get_extra_info(self, _name: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None: ...

    def is_closing(self) -> bool:
        return False


class Passer(Echo):
    """Echoes, and lets the first call say something, too."""

    first: Call | None = None

    def receive(self, message: bytes) -> None:
        first = Passer.first
        if first is None:
            Passer.first = self.call
        else:
            first.soon(lambda: first.send(b"from another call"))
            if message == b"fails":
                first.soon(fail)
                first.soon(lambda: first.send(b"after a failure"))
        super().receive(message)


def fail() -> None:
    raise RuntimeError("injected")


class Client:
    """One connection, whose bytes a test hands to the protocol."""

    def __init__(self) -> None:
        def serve(call: Call) -> CallHandler:
            return Passer(call)

        Passer.first = None
        self.connections = Connections({"/test/Echo": serve}, TransportLimits(), time.monotonic)
        self.transport = Written()
        self.protocol = Http2Protocol(self.connections)
        self.protocol.connection_made(cast("Any", self.transport))
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._h2.initiate_connection()
        self._pass()

    def open(self, message: bytes) -> int:
        """A call and its first message; returns its stream."""
        stream = self._h2.get_next_available_stream_id()
        self._h2.send_headers(stream, HEADERS)
        self.say(stream, message)
        return stream

    def say(self, stream: int, message: bytes) -> None:
        self._h2.send_data(stream, prefix(len(message)) + message)
        self._pass()

    def _pass(self) -> None:
        self.transport.writes.clear()
        self.protocol.data_received(self._h2.data_to_send())


async def test_what_a_read_defers_leaves_with_its_replies() -> None:
    """One write for the reply to a message, and for what it made possible on another call."""
    client = Client()
    client.open(b"first")
    client.open(b"second")
    (write,) = client.transport.writes
    assert write.index(b"second") < write.index(b"from another call")
    client.protocol.connection_lost(None)


async def test_a_deferred_step_that_fails_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.open(b"first")
    with caplog.at_level(logging.ERROR, "coxswain.transport"):
        client.open(b"fails")
    (write,) = client.transport.writes
    assert b"after a failure" in write
    assert [record.message for record in caplog.records] == ["a deferred step of a call failed"]
    client.protocol.connection_lost(None)


async def test_outside_of_a_read_it_runs_in_the_next_turn() -> None:
    client = Client()
    client.open(b"first")
    client.transport.writes.clear()
    first = Passer.first
    assert first is not None
    first.soon(lambda: first.send(b"later"))
    assert client.transport.writes == []
    await asyncio.sleep(0)  # the function runs
    await asyncio.sleep(0)  # what it sent is written
    assert b"later" in b"".join(client.transport.writes)
    client.protocol.connection_lost(None)
