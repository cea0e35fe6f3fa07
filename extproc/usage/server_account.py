"""What is known of the tokens of one server: its tasks, and what its counters say.

A reading of the counters is two scrapes in a row, the second of which reads the counters before the
slots. It is comparable if the slots that are busy then are those of the requests of ours that run,
all of which generated already at the first scrape: whatever else the counters contain has ended.

    counters = ended requests + prompts of the running ones

The first scrape of a server reads its counters, too, so that the comparison begins before its first
request; not if it is busy, with requests of the picker before.

Not comparable, so that another one is needed: a request began, ended or was left meanwhile; one
reads its prompt, waits inside the server, or takes several slots; somebody else uses the server.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.observation import Observation, TokenCounters
from extproc.usage.ended_tasks import PATIENCE_S, UNSHOWN_S, EndedTasks, Left, Work
from extproc.usage.reconciliation import Reconciliation, Tokens

LATE_ARRIVAL_S: Final = 2.0
"""How long after its client left a request may reach a server and end there."""


class Leases(Protocol):
    """What the ledger knows of the requests of ours that run."""

    def foreign_slots(self, address: Address) -> int:
        """How many slots somebody else uses."""

    def is_draining(self, address: Address) -> bool:
        """Whether the server may still work for a client that left."""

    def running(self, address: Address, since: float, until: float) -> int | None:
        """How many requests ran there from `since` until now, one slot each and no client gone;
        None if others did too, or if a response is still on its way. Requests that got their slot
        at `until` or later do not matter."""


class ServerAccount:
    """One server. A scrape costs O(tasks), a reading O(requests of the picker) besides."""

    def __init__(self, address: Address, leases: Leases | None) -> None:
        """Without `leases` its counters are not read."""
        self._address = address
        self._leases = leases
        self.tasks = EndedTasks()
        self.reconciliation = Reconciliation()
        self._instance: str | None = None
        self._is_new = True
        """No scrape has shown its slots yet."""
        self._is_due = False
        """The next scrape is the first one of a reading."""
        self._is_begun = False
        """The next scrape is the second one."""
        self._is_asked = False
        """The next observation should have the counters."""
        self._ended_at = float("-inf")
        self._foreign_since: float | None = None
        self._is_left = False
        """A client left, and its request was not seen to have ended yet."""

    @property
    def is_idle(self) -> bool:
        """Whether no request waits."""
        return self.tasks.is_idle and self.reconciliation.is_idle

    def request_ended(self, record: ExchangeRecord, now: float) -> None:
        """An exchange that had a slot here ended."""
        self._ended_at = now
        self._is_left = self._is_left or record.outcome is not Outcome.SERVED

    def settle(self, now: float, *, is_last: bool) -> list[tuple[Left, Work | None]]:
        """What was done for the requests that are decided by now, as `EndedTasks.settle`. Where the
        counters show their sum, it matters less whose of several tasks is whose."""
        patience_s = UNSHOWN_S if self.reconciliation.is_active else PATIENCE_S
        return self.tasks.settle(now, is_last=is_last, patience_s=patience_s)

    def wants_scrape(self, now: float) -> bool:
        """Whether to scrape it now, as the first half of a reading. Not while it may still work for
        a client that left: llama-server notices that the later, the more often it is asked."""
        if self._is_left:
            return False
        if self.reconciliation.wants_reading(now, is_pressing=not self.tasks.is_idle):
            self._is_due = True
            return True
        return False

    def takes_counters(self) -> bool:
        """Whether the scrape that begins now reads the counters: it is the second half of a
        reading, or the first scrape of the server."""
        self._is_asked = self._is_begun or (self._is_new and self._leases is not None)
        self._is_begun = False
        return self._is_asked

    def observe(
        self, observation: Observation, pending: Callable[[Address], Iterable[str]], now: float
    ) -> bool:
        """Take a scrape, after the ledger has. `pending` says which exchanges have ended and are
        not counted. Returns whether to scrape again at once, for the second half of a reading."""
        self.tasks.observe(observation)
        leases = self._leases
        if leases is None or observation.busy_slots is None:
            return False
        self._is_new = False
        foreign_slots = leases.foreign_slots(self._address)
        if self._is_used_by_others(foreign_slots, now) or observation.instance != self._instance:
            self._instance = observation.instance
            self.reconciliation.start_over()
        counters = observation.counters
        if self._is_asked:
            self._is_asked = False
            self.reconciliation.was_read(is_shown=counters is not None)
        if foreign_slots:
            return False
        if counters is not None:
            total = self._comparable(observation, counters, leases)
            if total is not None:
                rounding = Tokens(
                    counters.processed.rounding,
                    counters.cached.rounding,
                    counters.generated.rounding,
                )
                self.reconciliation.read(total, rounding, pending(self._address), now)
        self._is_left = self._is_left and leases.is_draining(self._address)
        if not self._is_due or self._is_left:
            return False
        self._is_due = False
        self._is_begun = True
        return True

    def _is_used_by_others(self, foreign_slots: int, now: float) -> bool:
        """Whether somebody else uses the server. Not if the slots can be those of clients that have
        just left: on a busy machine a request may arrive when its lease is over already."""
        if not foreign_slots:
            self._foreign_since = None
            return False
        if self._foreign_since is None:
            self._foreign_since = now
        late = self.tasks.left_since(now - LATE_ARRIVAL_S)
        return foreign_slots > late or now > self._foreign_since + LATE_ARRIVAL_S

    def _comparable(
        self, observation: Observation, counters: TokenCounters, leases: Leases
    ) -> Tokens | None:
        """What the server has counted of tasks that have ended; None if that is not known."""
        since = counters.began_at
        readings = observation.slot_readings
        if (
            self._is_left
            or self._ended_at >= since
            or leases.running(self._address, since, observation.answered_at)
            != observation.busy_slots
            or len(readings) != observation.busy_slots
            or not self.tasks.have_generated(readings, since)
        ):
            return None
        return Tokens(
            counters.processed.value - sum(one.processed_tokens or 0 for one in readings),
            counters.cached.value - sum(one.cached_tokens or 0 for one in readings),
            counters.generated.value,
        )
