"""A picker with few descriptors, and those who would take them all."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import httpx

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.conftest import QUICK
from tests.e2e.stack import Stack

LIMIT = 256
"""Of the picker; an ordinary shell's is four times that."""
EACH = 300
"""Connections to a port: more than all that the picker may have."""
FEW = 20
"""To the admin port, where those above its share are rejected: `tests/app/test_grpc_port.py`."""


SHELLS_LIMIT = 1024
FOLLOWERS = 500
REASON = re.compile(rb"\r\nx-coxswain-reason: (too-many-streams|picker-lost)\r\n")
STREAMS = SHELLS_LIMIT // 8
"""Of events; the pages have twice as many connections."""


class Limited(Stack):
    """With a picker of few descriptors."""

    limit = LIMIT

    async def restart_picker(self) -> None:
        limit = f"--nofile={self.limit}:{self.limit}"
        command = ["prlimit", limit, sys.executable, "-m", "extproc.cli"]
        command += ["serve", "--config", str(self.config)]
        self.picker = await self.children.start("picker", command)


async def test_who_takes_connections_takes_none_of_the_fleets(tmp_path: Path) -> None:
    """Half-open connections to each port, and streams of events of a queued request: scrapes go
    on, Envoy serves, and operators and probes are answered."""
    async with (
        Limited.running(tmp_path, slots=(1, 1), kind="simulator", settings=QUICK) as stack,
        AsyncExitStack() as exits,
    ):
        assert stack.picker is not None

        async def take(port: int, said: bytes = b"") -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            exits.callback(writer.close)
            writer.write(said)

        held = await stack.fill()
        queued = asyncio.create_task(stack.ask(headers={"x-request-id": "queued"}))
        await stack.until_waiting(1)
        asked = b"GET /queue/queued HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n"
        for _ in range(EACH):
            await take(stack.http_port, asked)
        for _ in range(EACH):
            await take(stack.http_port, b"GET /sta")
            await take(stack.grpc_port)
        for _ in range(FEW):
            await take(stack.admin_port)

        assert len(os.listdir(f"/proc/{stack.picker.pid}/fd")) < LIMIT - 64
        # The servers get new connections, as after a restart of theirs.
        for server in stack.servers:
            assert server.child is not None
            await held.pop().leave()
            await server.child.stop()
            await stack.start_server(server)
        assert (await queued).status_code == 200
        await stack.until(
            lambda status: all(one["health"] == "ready" for one in status["endpoints"].values())
        )
        assert (await stack.status())["problems"] == []
        answer = await stack.client.get(f"http://127.0.0.1:{stack.http_port}/readyz")
        assert (answer.status_code, answer.text) == (200, "ready\n")
        answers = await asyncio.gather(*(stack.ask() for _ in range(8)))
        assert {each.status_code for each in answers} == {200}
        async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel:
            found = await AdminStub(channel).ListEndpoints(pb.ListEndpointsRequest())
        assert len(found.endpoints) == 2


class OfAShell(Limited):
    """With a picker that has what an ordinary shell gives, and may have no more."""

    limit = SHELLS_LIMIT


def is_followed(head: bytes) -> bool:
    return head.startswith(b"HTTP/1.1 200")


async def test_hundreds_follow_a_queued_request_through_envoy(tmp_path: Path) -> None:
    """Each is answered by the picker: with events, or above the share of their port with 503 and
    the reason. All who follow hear how it ends; scrapes, operators and requests find descriptors
    meanwhile."""
    async with (
        OfAShell.running(tmp_path, slots=(1, 1), kind="simulator", settings=QUICK) as stack,
        AsyncExitStack() as exits,
    ):
        assert stack.picker is not None
        held = await stack.fill()
        envoy_port = httpx.URL(stack.url("/")).port
        queued = asyncio.create_task(stack.ask(headers={"x-request-id": "queued"}))
        await stack.until_waiting(1)
        asked = b"GET /queue/queued HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n"

        async def follow() -> tuple[bytes, asyncio.StreamReader]:
            reader, writer = await asyncio.open_connection("127.0.0.1", envoy_port)
            exits.callback(writer.close)
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            return head, reader

        followed = await asyncio.gather(*(follow() for _ in range(FOLLOWERS)))
        answers = Counter(head.split(b" ", 2)[1] for head, _ in followed)
        assert answers == {b"200": STREAMS, b"503": FOLLOWERS - STREAMS}, answers
        for head, _ in followed:
            if not is_followed(head):
                assert REASON.search(head), head  # Envoy's, if it was slow to send the request
                assert b"\r\nretry-after: 1\r\n" in head
        assert len(os.listdir(f"/proc/{stack.picker.pid}/fd")) < SHELLS_LIMIT - 256
        for server in stack.servers:
            assert server.child is not None
            await held.pop().leave()
            await server.child.stop()
            await stack.start_server(server)
        assert (await queued).status_code == 200
        for head, reader in followed:
            if is_followed(head):
                events = await reader.readuntil(b"\r\n0\r\n\r\n")
                assert events.count(b"data: ") >= 2, events  # that it waits, and how that ended
        await stack.until(
            lambda status: all(one["health"] == "ready" for one in status["endpoints"].values())
        )
        assert (await stack.status())["problems"] == []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel:
            found = await AdminStub(channel).ListEndpoints(pb.ListEndpointsRequest())
        assert len(found.endpoints) == 2
