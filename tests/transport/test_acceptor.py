"""Claims about extproc/transport/acceptor.py, over loopback sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator

import pytest

from extproc.transport.acceptor import Acceptor, listen
from tests.fakes.envoy_stream import eventually
from tests.fakes.no_descriptors import no_descriptors


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    (found,) = listen("127.0.0.1", 0)
    with found:
        yield found


@pytest.fixture
def taken() -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    yield found
    for each in found:
        each.close()


async def test_what_is_not_taken_waits_in_the_kernel(
    listener: socket.socket, taken: list[socket.socket]
) -> None:
    """`take` may end the accepting; once it is closed, nobody connects any more."""

    def take(connection: socket.socket) -> None:
        taken.append(connection)
        subject.accept(len(taken) < 2)

    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    subject = Acceptor([listener], take)
    await asyncio.sleep(0)
    assert not taken
    subject.accept(True)
    await eventually(lambda: len(taken) == 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(taken) == 2
    subject.accept(True)
    await eventually(lambda: len(taken) == 3)
    subject.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(clients[0].getpeername())
    for client in clients:
        client.close()


async def test_without_descriptors_it_waits_and_then_goes_on(
    listener: socket.socket, taken: list[socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    """One line, and no loop that does nothing else: a level-triggered socket wakes it each time."""
    subject = Acceptor([listener], taken.append)
    with socket.create_connection(listener.getsockname()):
        with no_descriptors():
            subject.accept(True)
            await eventually(lambda: "too many" in caplog.text.lower())
            for _ in range(100):
                await asyncio.sleep(0)
        await eventually(lambda: len(taken) == 1)
    subject.accept(False)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["connections cannot be accepted: Too many open files"]


def test_a_port_that_is_taken_is_an_error(listener: socket.socket) -> None:
    with pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", listener.getsockname()[1])
