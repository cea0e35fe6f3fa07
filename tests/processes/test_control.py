"""Claims about extproc/processes/control.py."""

from __future__ import annotations

import asyncio
import json
import socket

from extproc.processes.control import PACKET_BYTES, Control, Message, channel, in_parts
from tests.fakes.envoy_stream import eventually


async def test_messages_arrive_whole_with_their_sockets_and_the_end_is_heard_once() -> None:
    heard: list[tuple[Message, list[socket.socket]]] = []
    closed = asyncio.Event()
    ours, theirs = channel()
    sender = Control(ours, lambda *_: None, lambda: None)
    receiver = Control(theirs, lambda message, ends: heard.append((message, ends)), closed.set)
    left, right = socket.socketpair()
    assert sender.send({"do": "link"}, left)
    assert sender.send({"do": "stop", "text": "x" * 100_000})
    await eventually(lambda: len(heard) == 2)
    (first, ends), (second, none) = heard
    assert (first, none) == ({"do": "link"}, [])
    assert len(second["text"]) == 100_000
    ends[0].send(b"hello")
    assert right.recv(5) == b"hello"
    sender.close()
    await asyncio.wait_for(closed.wait(), 20)
    assert not receiver.send({"do": "nothing"})
    for each in (*ends, right):
        each.close()


async def test_a_peer_that_does_not_read_is_not_waited_for() -> None:
    ours, theirs = channel()
    sender = Control(ours, lambda *_: None, lambda: None)
    sent = [sender.send({"text": "x" * 50_000}) for _ in range(200)]
    assert sent[0] and not sent[-1]
    sender.close()
    theirs.close()


def test_entries_of_any_number_fit_into_messages() -> None:
    entries: dict[str, str | None] = {f"10.0.0.1:{port}": "x" * 900 for port in range(1000)}
    entries["gone"] = None
    parts = list(in_parts(entries))
    assert [(begins, ends) for begins, ends, _ in parts] == [
        (True, False),
        *[(False, False)] * (len(parts) - 2),
        (False, True),
    ]
    assert all(len(json.dumps(part)) < PACKET_BYTES for *_, part in parts)
    assert {key: text for *_, part in parts for key, text in part.items()} == entries
    assert list(in_parts({})) == [(True, True, {})]
