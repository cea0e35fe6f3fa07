"""Claims about extproc/usage/server_account.py."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from extproc.core.address import Address
from extproc.core.exchange_record import Outcome
from extproc.core.observation import (
    Counter,
    EndedTask,
    Observation,
    ScrapeStatus,
    SlotReading,
    TokenCounters,
)
from extproc.usage.ended_tasks import Left, Work
from extproc.usage.reconciliation import BASE_S, Held, Tokens
from extproc.usage.server_account import ServerAccount
from tests.telemetry.records import ADDRESS, record


@dataclass
class Ledger:
    """What the ledger knows of the running requests."""

    foreign: int = 0
    draining: bool = False
    open: int | None = 0
    """None: one more began or ended meanwhile."""

    def foreign_slots(self, address: Address) -> int:
        assert address == ADDRESS
        return self.foreign

    def is_draining(self, address: Address) -> bool:
        assert address == ADDRESS
        return self.draining

    def running(self, address: Address, since: float, until: float) -> int | None:
        assert address == ADDRESS
        assert 0 < since < until, "the scrape has shown what began until then"
        return self.open


def busy(
    task: int, prompt: int, decoded: int, *, cached: int = 0, read: int | None = None
) -> SlotReading:
    return SlotReading(
        task_id=task,
        prompt_tokens=prompt + decoded,
        cached_tokens=cached,
        processed_tokens=prompt - cached if read is None else read,
        decoded_tokens=decoded,
        remaining_tokens=999,
    )


class Server:
    """Its counters and slots, and scrapes of them 0.1 s apart."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.account = ServerAccount(ADDRESS, self.ledger)
        self.now = 100.0
        self.processed, self.cached, self.generated = 500, 20, 300
        self.rounding = 0
        self.slots: list[SlotReading] = []
        self.pending: set[str] = set()

    def scrape(self, *ended: EndedTask, shows_counters: bool = True, instance: str = "1") -> bool:
        """One scrape, as a scraper makes it: returns whether another is wanted at once."""
        self.now += 0.1
        counters = None
        if self.account.takes_counters() and shows_counters:
            counters = TokenCounters(
                began_at=self.now - 0.05,
                processed=Counter(self.processed, self.rounding),
                cached=Counter(self.cached),
                generated=Counter(self.generated),
            )
        observation = Observation(
            address=ADDRESS,
            began_at=self.now - 0.04,
            answered_at=self.now,
            status=ScrapeStatus.READY,
            busy_slots=len(self.slots),
            slot_readings=tuple(self.slots),
            ended_tasks=ended,
            instance=instance,
            counters=counters,
        )
        return self.account.observe(observation, lambda _: self.pending, self.now)

    def read(self, instance: str = "1") -> None:
        """Both scrapes of a reading, which is due."""
        self.now += 2 * BASE_S
        assert self.account.wants_scrape(self.now)
        assert self.scrape(instance=instance)
        assert not self.scrape(instance=instance)

    def hold(self, generated: int) -> Held:
        work = Work(prompt_tokens=0, cached_tokens=0, generated_tokens=generated)
        held = Held("left", work, self.now)
        self.account.reconciliation.hold(held)
        return held

    def ended(self, outcome: Outcome = Outcome.SERVED) -> None:
        self.account.request_ended(record(outcome=outcome, opened_at=1.0), self.now)


@pytest.fixture
def server() -> Server:
    """Whose counters have been read once."""
    server = Server()
    server.read()
    assert server.account.reconciliation.is_active
    return server


def test_what_counters_gained_is_split_over_those_who_left(server: Server) -> None:
    held = server.hold(10)
    server.processed += 7
    server.cached += 8
    server.generated += 13
    server.read()
    assert (held.tokens, held.is_compared) == (Tokens(7, 8, 13), True)


def test_the_prompts_of_running_requests_are_theirs(server: Server) -> None:
    """The counters have them, and their generated tokens only after their ends."""
    held = server.hold(10)
    server.processed += 7 + 25
    server.cached += 8 + 5
    server.generated += 13
    server.slots = [busy(3, 30, 12, cached=5)]
    server.ledger.open = 1
    server.read()
    assert (held.tokens, held.is_compared) == (Tokens(7, 8, 13), True)


@pytest.mark.parametrize(
    ("slots", "ledger"),
    [
        ([busy(3, 30, 12)], Ledger(open=0)),  # not ours
        ([busy(3, 30, 12)], Ledger(open=None)),
        ([busy(3, 30, 12)], Ledger(open=2)),  # one is on its way there or back
        ([busy(3, 30, 0, read=16)], Ledger(open=1)),  # the counters may miss batches
        ([busy(3, 30, 12), busy(4, 30, 0)], Ledger(open=2)),
    ],
)
def test_other_readings_are_not_comparable(
    server: Server, slots: list[SlotReading], ledger: Ledger
) -> None:
    held = server.hold(10)
    server.slots = slots
    vars(server.ledger).update(vars(ledger))
    server.generated += 13
    server.read()
    assert server.account.reconciliation.settle(server.now) == []
    server.slots = []
    server.ledger.open = 0
    server.read()
    assert held.tokens.generated == 13


def test_a_task_that_began_to_generate_during_the_reading_is_not_comparable(
    server: Server,
) -> None:
    """The counters may have been read before the end of its prompt."""
    held = server.hold(10)
    server.generated += 13
    server.now += 2 * BASE_S
    assert server.account.wants_scrape(server.now)
    server.slots, server.ledger.open = [busy(3, 30, 0, read=16)], 1
    assert server.scrape()
    server.slots = [busy(3, 30, 1)]
    server.scrape()
    assert server.account.reconciliation.settle(server.now) == []
    server.processed += 30
    server.read()
    assert (held.tokens, held.is_compared) == (Tokens(0, 0, 13), True)


@pytest.mark.parametrize("outcome", [Outcome.SERVED, Outcome.BROKEN])
def test_a_reading_during_which_a_request_ended_is_not_comparable(
    server: Server, outcome: Outcome
) -> None:
    """It may have ended after the counters were read."""
    held = server.hold(10)
    server.now += 2 * BASE_S
    assert server.account.wants_scrape(server.now)
    assert server.scrape()
    server.now += 0.05
    server.ended(outcome)
    server.now -= 0.05
    server.scrape()
    assert server.account.reconciliation.settle(server.now) == []
    server.scrape()
    server.read()
    assert server.account.reconciliation.settle(server.now) == [held]


def test_a_server_is_left_alone_while_it_may_work_for_a_client_that_left(server: Server) -> None:
    """It notices an ordinary client's end only if it is not asked for a second."""
    held = server.hold(10)
    server.ended(Outcome.BROKEN)
    server.ledger.draining = True
    server.slots = [busy(3, 30, 12)]
    server.now += 100
    assert not server.account.wants_scrape(server.now)
    assert not server.scrape()
    assert not server.account.wants_scrape(server.now)
    server.ledger.draining, server.slots = False, []
    server.scrape(EndedTask(task_id=3, held_tokens=60))
    server.generated += 13
    server.read()
    assert held.tokens.generated == 13


def test_a_reading_that_is_due_waits_for_the_end_of_a_left_request(server: Server) -> None:
    server.hold(10)
    server.now += 2 * BASE_S
    assert server.account.wants_scrape(server.now)
    server.ended(Outcome.BROKEN)
    server.ledger.draining = True
    assert not server.scrape()
    server.ledger.draining = False
    assert server.scrape()


@pytest.mark.parametrize("how", ["foreign", "instance"])
def test_what_others_used_is_nobodys(server: Server, how: str) -> None:
    """Nor what another process counted."""
    held = server.hold(10)
    server.generated += 999
    if how == "foreign":
        server.ledger.foreign = 1
        assert not server.scrape()
        server.ledger.foreign = 0
        server.read()
    else:
        server.generated = 5
        server.read("2")
    assert (held.tokens.generated, held.is_compared) == (10, False)
    held = server.hold(10)
    server.generated += 13
    server.read("1" if how == "foreign" else "2")
    assert (held.tokens.generated, held.is_compared) == (13, True)


@pytest.mark.parametrize(
    ("slots", "lasts_s", "is_ours"), [(1, 0.5, True), (2, 0.5, False), (1, 3.0, False)]
)
def test_a_request_that_arrives_after_its_client_left_is_not_foreign(
    server: Server, slots: int, lasts_s: float, is_ours: bool
) -> None:
    """Its lease is over, so the ledger cannot know; what lasts, or is more, is somebody else's."""
    held = server.hold(10)
    server.account.tasks.left(Left(opened_at=server.now - 0.3, left_at=server.now))
    server.ledger.foreign = slots
    assert not server.scrape()
    server.now += lasts_s
    server.scrape()
    server.ledger.foreign = 0
    server.processed += 7
    server.generated += 13
    server.read()
    tokens = Tokens(7, 0, 13) if is_ours else Tokens(0, 0, 10)
    assert (held.tokens, held.is_compared) == (tokens, is_ours)


def test_requests_that_are_not_counted_yet_are_waited_for(server: Server) -> None:
    held = server.hold(10)
    server.generated += 13 + 20
    server.pending = {"whole"}
    server.read()
    assert server.account.reconciliation.settle(server.now) == []
    server.account.reconciliation.book("whole", Tokens(generated=20))
    assert server.account.reconciliation.settle(server.now) == [held]
    assert held.tokens.generated == 13


def test_rounded_counters_decide_no_more_than_they_show(server: Server) -> None:
    server.rounding = 50
    held = server.hold(10)
    server.processed += 49
    server.read()
    assert held.tokens.processed == 0


def test_a_server_that_shows_no_counters_is_as_without_them(server: Server) -> None:
    for _ in range(3):
        server.account.reconciliation.book("one", Tokens(1, 1, 1))
        server.now += 2 * BASE_S
        assert server.account.wants_scrape(server.now)
        assert server.scrape(shows_counters=False)
        server.scrape(shows_counters=False)
    assert not server.account.reconciliation.is_active


def test_the_first_scrape_begins_what_is_compared() -> None:
    """A picker that has work from its first moment on finds no idle server later."""
    server = Server()
    assert not server.scrape()
    held = server.hold(10)
    server.generated += 13
    server.read()
    assert (held.tokens.generated, held.is_compared) == (13, True)


def test_a_first_scrape_without_slots_is_not_the_first() -> None:
    server = Server()
    assert server.account.takes_counters()
    loading = Observation(
        address=ADDRESS, began_at=1.0, answered_at=1.1, status=ScrapeStatus.LOADING
    )
    assert not server.account.observe(loading, lambda _: set(), server.now)
    assert server.account.takes_counters()
    server.scrape()
    assert not server.account.takes_counters()


def test_a_first_scrape_of_a_busy_server_begins_nothing() -> None:
    """The picker before had requests there."""
    server = Server()
    server.slots = [busy(3, 30, 12)]
    server.ledger.open = 1
    server.scrape()
    server.slots, server.ledger.open = [], 0
    held = server.hold(10)
    server.read()
    assert not held.is_compared


def test_without_a_ledger_nothing_is_read() -> None:
    server = Server()
    server.account = ServerAccount(ADDRESS, None)
    assert not server.scrape()
    assert not server.account.takes_counters()
    server.account.tasks.left(Left(opened_at=1.0, left_at=2.0))
    assert not server.account.is_idle
