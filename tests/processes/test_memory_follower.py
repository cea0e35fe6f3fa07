"""Claims about extproc/processes/memory_follower.py, over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes import memory_feed, memory_follower
from extproc.processes.fronts.handshake import HandshakeError, HandshakeServer
from extproc.processes.fronts.link import Link
from extproc.processes.learned_frames import SEED_VARIABLE, learned_codec
from extproc.processes.memory_feed import Memory, MemoryFeed
from extproc.processes.memory_follower import MemoryFollower
from extproc.settings.cluster_section import ClusterSettings
from tests.fakes.envoy_stream import eventually
from tests.fakes.small_fleet import SmallFleet

CLUSTER = ClusterSettings(name="c", valkey=("redis://127.0.0.1:1",), advertise="127.0.0.1:9004")


class Leader:
    """The side of its port for members that says what is learned."""

    def __init__(self, slots: tuple[int, ...]) -> None:
        self.feed = MemoryFeed(SmallFleet(*slots).dispatcher, tuple, lambda: None)
        self.links: list[Link] = []
        self.rejections = 0
        """How many of the next members it does not know."""
        self.term: dict[str, Any] = {}

    @asynccontextmanager
    async def running(self, epoch: int) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: HandshakeServer(self._accept, loop), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        self.term = {"leader": f"a/{epoch}", "epoch": epoch, "address": f"127.0.0.1:{port}"}
        try:
            yield
        finally:
            for link in self.links:
                link.close()
            server.close()

    def _accept(self, greeting: pb.Greeting) -> asyncio.Protocol:
        assert greeting.purpose == pb.Greeting.PURPOSE_LEARN
        assert (greeting.leader_id, greeting.epoch) == (self.term["leader"], self.term["epoch"])
        if self.rejections:
            self.rejections -= 1
            raise HandshakeError("not yet")
        link = Link(self.feed, asyncio.get_running_loop(), codec=learned_codec())
        self.links.append(link)
        self.feed.attach(link)
        return cast("asyncio.Protocol", link)

    async def said(self, memory: Memory, endpoints: int) -> None:
        """Wait until the follower has heard of so many endpoints."""

        def has_heard() -> bool:
            self.feed.feed()
            return len(memory) == endpoints

        await eventually(has_heard)


@asynccontextmanager
async def following(memory: Memory, seeds: list[int]) -> AsyncIterator[MemoryFollower]:
    follower = MemoryFollower(CLUSTER, memory, seeds.append)
    try:
        yield follower
    finally:
        await follower.stop()


async def test_it_hears_the_leader_and_then_the_next_one() -> None:
    first, second, memory, seeds = Leader((4, 4)), Leader((4, 4, 4)), Memory(), list[int]()
    async with first.running(1), second.running(2), following(memory, seeds) as follower:
        assert memory.heard_at is None
        follower.follow(first.term)
        follower.follow(dict(first.term))  # the supervisor says it again and again
        await first.said(memory, 2)
        follower.follow(second.term)
        await second.said(memory, 3)
        await eventually(lambda: not first.links[0].is_open)
        assert len(first.links) == len(second.links) == 1
    await eventually(lambda: not second.links[0].is_open)
    assert not seeds and memory.heard_at is not None


@pytest.mark.parametrize("fault", ["lost", "rejected", "silent"])
async def test_it_connects_again(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader of a version before this one rejects it; then that one is upgraded."""
    monkeypatch.setattr(memory_follower, "RETRY_S", 0.01)
    monkeypatch.setattr(memory_follower, "CHECK_S", 0.01)
    leader, memory = Leader((4, 4)), Memory()
    leader.rejections = 2 if fault == "rejected" else 0
    async with leader.running(1), following(memory, []) as follower:
        follower.follow(leader.term)
        await leader.said(memory, 2)
        if fault == "lost":
            leader.links[0].close()
        elif fault == "silent":
            monkeypatch.setattr(memory_follower, "SILENT_S", 0.0)
        if fault != "rejected":
            await eventually(lambda: len(leader.links) > 1)


async def test_a_leader_with_other_hashes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a spare with its hashes takes the place of this one."""
    leader, memory, seeds = Leader((4, 4)), Memory(), list[int]()
    async with leader.running(1), following(memory, seeds) as follower:
        monkeypatch.setattr(memory_feed, "hash_seed", lambda: (13, 1))  # the leader's
        monkeypatch.setenv(SEED_VARIABLE, "12")
        follower.follow(leader.term)
        await eventually(lambda: set(seeds) == {13})
