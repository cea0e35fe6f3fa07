"""Which server has which conversation, and whose it is.

llama-server keeps the streamed answer to a request with an `x-conversation-id`, and goes on when
its client leaves. The client reads the rest later from the server that has it: this one alone.

Whose an id is goes by its beginning, up to `::`, because servers match that when they look ids up.
It belongs to the client that used it first, until none of its conversations is known: a server
would end the answer of anybody who used it before.

A conversation is known until `KEPT_S` after its slot is free, or until its server was replaced or
left. At most `capacity` are known: those that ended first make way, and if too few have ended, a
further one is not kept. Pure: time is an argument, in monotonic seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from extproc.core.address import Address
from extproc.core.learner import Learner
from extproc.core.slots.lease import Lease, LeaseState

KEPT_S: Final = 360.0
"""llama-server keeps an answer for 300 s after its end, and looks every 60 s for older ones
(`STREAM_SESSION_TTL_SECONDS` and `STREAM_SESSION_GC_INTERVAL_SECONDS` in `server-stream.cpp`)."""
SWEEP_S: Final = 60.0
CAPACITY: Final = 8192
"""About 10 MB with ids of the greatest length."""
MAX_ID_CHARS: Final = 256
SEPARATOR: Final = "::"
"""Between an id and the name of a model, which clients append to it."""


@dataclass(slots=True)
class _Owned:
    """The conversations whose ids begin alike, and the client that they belong to."""

    client: str
    leases: dict[str, Lease] = field(default_factory=dict)


class Conversations(Learner):
    """By id. Every call is O(conversations whose ids begin alike), but for a sweep of all each
    `SWEEP_S`, and when there are too many."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._owned: dict[str, _Owned] = {}
        self._count = 0
        self._swept_at = 0.0

    def __len__(self) -> int:
        return self._count

    def begin(self, id_: str, client: str, lease: Lease) -> bool:
        """A request of this client with this id got a lease. Returns whether its conversation is
        kept: not if the id is another client's, or there are too many."""
        self._make_room(lease.opened_at)
        start = _start_of(id_)
        owned = self._owned.get(start)
        if owned is not None and owned.client != client:
            return False
        if owned is None or id_ not in owned.leases:
            if self._count >= self._capacity:
                return False
            self._count += 1
        if owned is None:
            owned = self._owned[start] = _Owned(client)
        owned.leases[id_] = lease
        lease.outlives_client = True
        return True

    def server_of(self, id_: str, client: str) -> Address | None:
        """The server that has this conversation of this client; None if it has none."""
        owned = self._owned.get(_start_of(id_))
        lease = owned.leases.get(id_) if owned is not None and owned.client == client else None
        return None if lease is None else lease.address

    def found(self, ids: Iterable[str], client: str) -> dict[str, Lease]:
        """This client's conversations with one of these ids, or with one and a model behind it."""
        found: dict[str, Lease] = {}
        for wanted in dict.fromkeys(ids):
            owned = self._owned.get(_start_of(wanted))
            if owned is not None and owned.client == client:
                below = wanted + SEPARATOR
                found |= {
                    id_: lease
                    for id_, lease in owned.leases.items()
                    if id_ == wanted or id_.startswith(below)
                }
        return found

    def forget(self, address: Address) -> None:
        """Its server was replaced or is gone: what it had is lost, but for what runs."""
        self._drop(
            id_
            for id_, lease in self._all()
            if lease.address == address and lease.state is not LeaseState.OPEN
        )

    def replaced(self, address: Address, _now: float) -> None:
        self.forget(address)

    def _make_room(self, now: float) -> None:
        is_full = self._count >= self._capacity
        if not is_full and now < self._swept_at + SWEEP_S:
            return
        self._swept_at = now
        ended = sorted(
            (lease.closed_at, id_) for id_, lease in self._all() if lease.closed_at is not None
        )
        # An eighth at once: a full table is not searched for each request.
        surplus = self._capacity // 8 + 1 if is_full else 0
        self._drop(
            id_
            for number, (closed_at, id_) in enumerate(ended)
            if number < surplus or closed_at < now - KEPT_S
        )

    def _all(self) -> list[tuple[str, Lease]]:
        return [one for owned in self._owned.values() for one in owned.leases.items()]

    def _drop(self, ids: Iterable[str]) -> None:
        for id_ in list(ids):
            start = _start_of(id_)
            owned = self._owned[start]
            del owned.leases[id_]
            self._count -= 1
            if not owned.leases:
                del self._owned[start]


def _start_of(id_: str) -> str:
    return id_.partition(SEPARATOR)[0]
