"""Poison requests: requests during which two servers died are not sent to a third one.

A request may kill the server that works on it, and clients repeat failed requests. So a request
that lost its connection is remembered by its fingerprint until its server is scraped: if it is dead
or replaced, that counts as a death, otherwise not. A request that succeeds anywhere is cleared.
Requests that run beside a killer count as well, because they cannot be distinguished.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from extproc.core.address import Address
from extproc.core.learner import Learner

DEATHS: Final = 2
"""The number of servers that may die during one request."""
SEEN_WITHIN_S: Final = 10.0
"""The maximum time between a lost connection and the scrape that shows the death."""
UNSURE_S: Final = 1.0
"""For this time a lost connection counts as a death although the server was not scraped since."""
TOGETHER_S: Final = 0.5
"""Connections to one server that are lost within this time were lost by one death."""
REMEMBERED_S: Final = 600.0
MAX_REQUESTS: Final = 1024
"""Requests that are remembered; the one with the oldest lost connection is dropped."""


@dataclass(slots=True)
class _Suspect:
    deaths: int = 0
    last_at: float = 0.0
    last_lost: tuple[Address, float] | None = None
    lost: dict[Address, float] = field(default_factory=dict)
    """Where it lost its connection, and when; the server was not scraped since."""


class PoisonGuard(Learner):
    """Bounded by `MAX_REQUESTS`. O(1) a request; a scrape of a server is O(its suspects)."""

    def __init__(self) -> None:
        self._suspects: OrderedDict[int, _Suspect] = OrderedDict()
        self._lost_at: dict[Address, set[int]] = {}
        """The suspects by server, for servers that were not scraped since."""
        self._died_at: dict[Address, float] = {}

    def lost_connection(self, fingerprint: int, address: Address, now: float) -> None:
        """A request that was sent there lost its connection. Fingerprint 0 is ignored."""
        if not fingerprint:
            return
        suspect = self._suspects.get(fingerprint)
        if suspect is None:
            suspect = self._suspects[fingerprint] = _Suspect()
            if len(self._suspects) > MAX_REQUESTS:
                self._drop(next(iter(self._suspects)))
        self._suspects.move_to_end(fingerprint)
        suspect.last_at = now
        last, suspect.last_lost = suspect.last_lost, (address, now)
        if last is not None and last[0] == address and now - last[1] < TOGETHER_S:
            return  # an equal request beside it: it is the same death
        died_at = self._died_at.get(address)
        if died_at is not None and now - died_at <= SEEN_WITHIN_S:
            suspect.deaths += 1
        else:
            suspect.lost[address] = now
            self._lost_at.setdefault(address, set()).add(fingerprint)

    def died(self, address: Address, now: float) -> None:
        """The server there is dead."""
        self._died_at[address] = now
        for suspect, lost_at in self._seen(address):
            if now - lost_at <= SEEN_WITHIN_S:
                suspect.deaths += 1

    def seen_alive(self, address: Address) -> None:
        """The server there answered a scrape that began after its last change: requests that lost
        their connection there did not kill it."""
        self._died_at.pop(address, None)
        self._seen(address)

    def succeeded(self, fingerprint: int) -> None:
        """The request was served to its end."""
        if fingerprint in self._suspects:
            self._drop(fingerprint)

    def is_poison(self, fingerprint: int, now: float) -> bool:
        """Whether it must not be sent to another server."""
        suspect = self._suspects.get(fingerprint)
        if suspect is None or now - suspect.last_at > REMEMBERED_S:
            return False
        unsure = sum(now - lost_at <= UNSURE_S for lost_at in suspect.lost.values())
        return suspect.deaths + unsure >= DEATHS

    def forget(self, address: Address) -> None:
        """The endpoint left the fleet."""
        self.seen_alive(address)

    def replaced(self, address: Address, now: float) -> None:
        self.died(address, now)

    def _seen(self, address: Address) -> list[tuple[_Suspect, float]]:
        """The requests that lost their connection there; they are no longer undecided."""
        suspects = (self._suspects[one] for one in self._lost_at.pop(address, ()))
        return [(suspect, suspect.lost.pop(address)) for suspect in suspects]

    def _drop(self, fingerprint: int) -> None:
        for address in self._suspects.pop(fingerprint).lost:
            suspects = self._lost_at[address]
            suspects.discard(fingerprint)
            if not suspects:
                del self._lost_at[address]
