"""What the leading core has learned, at its spare and at the members that stand by, in small
snapshots, so that little of it is lost.

    core: every `FEED_S`, of at most `BATCH` endpoints --learned_frames--> spare: keeps the bytes
                                                                           leads: learns them

A snapshot is sent when something was learned since the last one. Who keeps them does not read them
before it leads; then it learns for `LEARN_S` at once, and the rest in steps between requests.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from extproc.core.address import Address
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.link import Link
from extproc.processes.learned_frames import (
    COUNTERS,
    ENDPOINT,
    FLEET,
    GONE,
    HASH_SEED,
    KEYS,
    hash_seed,
    learned_bytes,
    learned_of,
)

FEED_S: Final = 0.25
BATCH: Final = 16
"""About 0.2 ms each, with a full memory of prompts."""
MAX_BYTES: Final = 64 << 20
"""The most that a spare keeps: ten times what the memory of prompts may hold."""
LEARN_S: Final = 0.05
STEP_S: Final = 0.01
KEEP_S: Final = 60.0
"""How long a core keeps what it learned of an endpoint that it does not know yet: agents report."""

log = logging.getLogger("coxswain.core")


class MemoryFeed:
    """The core's side. The owner of its links; belongs to one event loop."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        counters: Callable[[], tuple[Any, ...]],
        key_names: Callable[[], Mapping[str, str] | None],
        key_ends: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._dispatcher = dispatcher
        self._counters = counters
        self._key_names = key_names
        self._key_ends = key_ends
        self._sent_keys: dict[Link, Mapping[str, str]] = {}
        self._sent: dict[Link, dict[Address, tuple[float, ...]]] = {}
        self._next = 0

    def attach(self, link: Link) -> None:
        """A spare, or a member that stands by, which knows nothing yet."""
        self._sent[link] = {}
        link.say((HASH_SEED, *hash_seed()))

    def feed(self) -> None:
        """Send the next part of what is new. O(`BATCH` endpoints)."""
        for link, sent in self._sent.items():
            if link.is_open and not link.is_throttled:
                self._feed(link, sent)

    def _feed(self, link: Link, sent: dict[Address, tuple[float, ...]]) -> None:
        dispatcher = self._dispatcher
        addresses = [endpoint.address for endpoint in dispatcher.fleet if not endpoint.is_removed]
        count, found = len(addresses), 0
        for step in range(count):
            if found == BATCH:
                break
            address = addresses[(self._next + step) % count]
            version = dispatcher.learned_version(address)
            if sent.get(address) != version:
                sent[address] = version
                found += 1
                link.say((ENDPOINT, str(address), learned_bytes(dispatcher.learned(address))))
        self._next = (self._next + BATCH) % max(1, count)
        if len(sent) > count:
            here = set(addresses)
            for address in [each for each in sent if each not in here]:
                del sent[address]
                link.say((GONE, str(address)))
        link.say((FLEET, dispatcher.learned(None)))
        if link.is_remote:
            return  # another machine counts by itself, and reads a file of its own
        link.say((COUNTERS, self._counters()))
        names = self._key_names()
        if names is not None and self._sent_keys.get(link) is not names:
            self._sent_keys[link] = names
            link.say((KEYS, dict(names), dict(self._key_ends())))

    # The owner of links

    def heard(self, link: Link, batch: list[Frame]) -> None:
        """A spare says nothing."""

    def lost(self, link: Link) -> None:
        self._sent.pop(link, None)
        self._sent_keys.pop(link, None)


class Memory:
    """The side that keeps it. The owner of its link; belongs to one event loop."""

    def __init__(self) -> None:
        self._endpoints: dict[str, bytes] = {}
        self._fleet: tuple[Any, ...] = ()
        self._counters: tuple[Any, ...] = ()
        self._has_same_hashes = True
        self._bytes = 0
        self.core_seed = 0
        """The seed of the hashes at the core that is listened to; 0 if it is not known."""
        self.heard_at: float | None = None
        """When that core last said something, in monotonic seconds."""
        self.key_names: Mapping[str, str] | None = None
        """The names of clients by the digests of their keys, if the core has said them."""
        self.key_ends: Mapping[str, float] = {}
        """The Unix times at which some of these keys expire."""

    def __len__(self) -> int:
        """The number of endpoints of which something is kept."""
        return len(self._endpoints)

    def relearn(
        self, dispatcher: Dispatcher, restore_counters: Callable[[tuple[Any, ...]], None]
    ) -> None:
        """Learn what belongs to the fleet, and of endpoints for `LEARN_S`; `go_on` does the
        rest."""
        if self._fleet:
            self._try(lambda: dispatcher.relearn(None, self._fleet))
        if self._counters:
            self._try(lambda: restore_counters(self._counters))
        self._fleet = self._counters = ()
        self.go_on(dispatcher, LEARN_S)

    def go_on(self, dispatcher: Dispatcher, limit_s: float = STEP_S) -> bool:
        """Learn of more endpoints that are in the fleet; returns whether any are left."""
        end = time.monotonic() + limit_s
        for text in list(self._endpoints):
            address = Address.parse(text)
            if address not in dispatcher.fleet:
                continue
            self._try(lambda: dispatcher.relearn(address, self._take(text)))  # noqa: B023 - called at once
            if time.monotonic() >= end:
                break
        return bool(self._endpoints)

    def _take(self, text: str) -> tuple[Any, ...]:
        data = self._endpoints.pop(text)
        self._bytes -= len(data)
        return learned_of(data, with_cache=self._has_same_hashes)

    def _try(self, learn: Callable[[], None]) -> None:
        """What cannot be read is learned again."""
        try:
            learn()
        except (ValueError, TypeError, DecodeError):
            log.exception("what the core before this one had learned cannot be read")

    # The owner of the link

    def heard(self, link: Link, batch: list[Frame]) -> None:  # noqa: ARG002
        self.heard_at = time.monotonic()
        for frame in batch:
            kind = frame[0]
            if kind == ENDPOINT:
                self._put(frame[1], frame[2])
            elif kind == FLEET:
                self._fleet = frame[1]
            elif kind == COUNTERS:
                self._counters = frame[1]
            elif kind == KEYS:
                self.key_names, self.key_ends = frame[1], frame[2]
            elif kind == HASH_SEED:
                self._hear_seed(frame[1:])
            elif kind == GONE:
                self._bytes -= len(self._endpoints.pop(frame[1], b""))

    def _hear_seed(self, said: tuple[int, int]) -> None:
        self.core_seed = said[0]
        has_same = said == hash_seed()
        if has_same != self._has_same_hashes:
            self._endpoints.clear()
            self._bytes = 0
        self._has_same_hashes = has_same

    def _put(self, address: str, data: bytes) -> None:
        self._bytes += len(data) - len(self._endpoints.pop(address, b""))
        self._endpoints[address] = data
        while self._bytes > MAX_BYTES:
            oldest = next(iter(self._endpoints))
            self._bytes -= len(self._endpoints.pop(oldest))

    def lost(self, link: Link) -> None:
        """The core is gone: what it said is kept."""
