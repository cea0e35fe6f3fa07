"""Claims about extproc/processes/memory_feed.py: what a core learned is at its spare."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from random import Random
from typing import Any, cast

import pytest

from extproc.processes import learned_frames, memory_feed
from extproc.processes.fronts.link import Link
from extproc.processes.learned_frames import (
    COUNTERS,
    ENDPOINT,
    FLEET,
    KEYS,
    SEED_VARIABLE,
    learned_bytes,
    learned_codec,
)
from extproc.processes.memory_feed import Memory, MemoryFeed
from extproc.security.known_keys import KnownKeys, digest_of
from tests.core.learning.test_learned import work
from tests.fakes.envoy_stream import eventually
from tests.fakes.small_fleet import SmallFleet


async def connected(
    feed: MemoryFeed, memory: Memory, *, is_remote: bool = False
) -> tuple[Link, Link]:
    loop = asyncio.get_running_loop()
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    codecs = [learned_codec() if is_remote else None for _ in range(2)]
    links = Link(feed, loop, codec=codecs[0]), Link(memory, loop, codec=codecs[1])
    for link, end in zip(links, ends, strict=True):
        await loop.connect_accepted_socket(partial(cast, "asyncio.Protocol", link), end)
    feed.attach(links[0])
    return links


def has(batches: list[list[str]], count: int) -> bool:
    return len(batches) == count


def restored(into: list[Any]) -> Any:
    return into.append


async def test_a_spare_knows_what_the_core_learned() -> None:
    fleet, memory = SmallFleet(4, 4, 4), Memory()
    work(fleet, Random(1), 100)
    feed = MemoryFeed(fleet.dispatcher, lambda: (7,), lambda: None)
    links = await connected(feed, memory)
    feed.feed()
    await eventually(lambda: len(memory) == 3)
    other = SmallFleet(4, 4, 4)
    counters: list[Any] = []
    other.now = fleet.now
    memory.relearn(other.dispatcher, restored(counters))
    assert counters == [(7,)]
    for address in fleet.addresses:
        assert other.dispatcher.learned(address) == fleet.dispatcher.learned(address)
    for link in links:
        link.close()
    await eventually(lambda: not feed._sent)


async def test_a_member_on_another_machine_knows_it_too_but_neither_keys_nor_counters() -> None:
    kinds: set[int] = set()

    class Recorder(Memory):
        def heard(self, link: Link, batch: list[Any]) -> None:
            super().heard(link, batch)
            kinds.update(frame[0] for frame in batch)

    fleet, memory = SmallFleet(4, 4, 4), Recorder()
    work(fleet, Random(1), 100)
    keys = KnownKeys({digest_of("sk-1"): "web"})
    feed = MemoryFeed(fleet.dispatcher, lambda: (7,), keys.names)
    links = await connected(feed, memory, is_remote=True)
    feed.feed()
    await eventually(lambda: FLEET in kinds)
    assert kinds.isdisjoint({COUNTERS, KEYS}) and memory.key_names is None
    other = SmallFleet(4, 4, 4)
    counters: list[Any] = []
    memory.relearn(other.dispatcher, restored(counters))
    assert not counters
    for address in (*fleet.addresses, None):
        assert other.dispatcher.learned(address) == fleet.dispatcher.learned(address)
    for link in links:
        link.close()


async def test_hashes_of_another_seed_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds and sessions are, as they mean the same everywhere."""
    fleet, memory = SmallFleet(4, 4, 4), Memory()
    work(fleet, Random(1), 100)
    feed = MemoryFeed(fleet.dispatcher, tuple, lambda: None)
    monkeypatch.setenv(SEED_VARIABLE, "12")
    links = await connected(feed, memory, is_remote=True)
    monkeypatch.setattr(memory_feed, "hash_seed", lambda: (13, 1))  # the reader's
    feed.feed()
    await eventually(lambda: len(memory) == 3)
    assert memory.core_seed == 12
    other = SmallFleet(4, 4, 4)
    memory.relearn(other.dispatcher, restored([]))
    for address in fleet.addresses:
        speeds, _, sessions = fleet.dispatcher.learned(address)
        assert other.dispatcher.learned(address) == (speeds, (), sessions)
    for link in links:
        link.close()


def test_what_a_core_with_other_hashes_said_is_forgotten() -> None:
    """The blocks of the leader before mean nothing, although those of the present one do."""
    memory, link = Memory(), cast("Any", None)
    seed, check = learned_frames.hash_seed()
    memory.heard(link, [(learned_frames.HASH_SEED, seed + 1, check - 1)])
    memory.heard(link, [(ENDPOINT, "10.0.0.1:8080", b"x")])
    memory.heard(link, [(learned_frames.HASH_SEED, seed, check)])
    assert not len(memory)


async def test_only_what_is_new_is_sent_and_a_part_at_a_time() -> None:
    class Recorder(Memory):
        def __init__(self) -> None:
            super().__init__()
            self.batches: list[list[str]] = []

        def heard(self, link: Link, batch: list[Any]) -> None:
            super().heard(link, batch)
            if any(frame[0] == COUNTERS for frame in batch):
                self.batches.append([frame[1] for frame in batch if frame[0] == ENDPOINT])

    fleet, memory = SmallFleet(*[1] * (memory_feed.BATCH + 4)), Recorder()
    feed = MemoryFeed(fleet.dispatcher, tuple, lambda: None)
    links = await connected(feed, memory)
    for number in range(1, 4):
        feed.feed()
        await eventually(partial(has, memory.batches, number))
    assert [len(batch) for batch in memory.batches] == [memory_feed.BATCH, 4, 0]
    assert len(set(memory.batches[0]) | set(memory.batches[1])) == memory_feed.BATCH + 4
    fleet.name(*fleet.addresses[1:])
    feed.feed()
    await eventually(lambda: len(memory) == memory_feed.BATCH + 3)
    for link in links:
        link.close()


async def test_clients_keys_are_said_once_and_after_each_change() -> None:
    """A spare that leads while the file has a mistake knows those from before."""
    heard: list[Any] = []

    class Recorder(Memory):
        def heard(self, link: Link, batch: list[Any]) -> None:
            super().heard(link, batch)
            heard.extend(frame[0] for frame in batch if frame[0] in {KEYS, COUNTERS})

    keys, memory = KnownKeys({digest_of("sk-1"): "web"}), Recorder()
    feed = MemoryFeed(SmallFleet(1).dispatcher, tuple, keys.names)
    links = await connected(feed, memory)
    for number in (1, 2):
        feed.feed()
        await eventually(lambda number=number: heard.count(COUNTERS) == number)  # type: ignore[misc]
    assert memory.key_names == {digest_of("sk-1"): "web"} and heard.count(KEYS) == 1
    keys.replace({})
    feed.feed()
    await eventually(lambda: memory.key_names == {})
    for link in links:
        link.close()


def test_an_endpoint_that_is_known_later_is_learned_then() -> None:
    fleet, memory = SmallFleet(4, 4), Memory()
    link: Any = None
    for address in fleet.addresses:
        data = learned_bytes(fleet.dispatcher.learned(address))
        memory.heard(link, [(ENDPOINT, str(address), data)])
    other = SmallFleet(4)
    memory.relearn(other.dispatcher, restored([]))
    assert len(memory) == 1
    other.add(4)
    assert not memory.go_on(other.dispatcher)


def test_a_spare_keeps_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_feed, "MAX_BYTES", 25)
    memory = Memory()
    for number in range(4):
        memory.heard(cast("Any", None), [(ENDPOINT, f"10.0.0.1:{number}", b"x" * 10)])
    assert len(memory) == 2
