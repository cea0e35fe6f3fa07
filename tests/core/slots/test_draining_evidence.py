"""Claims about extproc/core/slots/draining_evidence.py: the draining leases that a scrape ends."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.observation import MAX_ENTRIES, Observation, ScrapeStatus, SlotReading
from extproc.core.slots.draining_evidence import ARRIVAL_S, RELEASE_S, DrainingEvidence
from extproc.core.slots.lease import Lease

ADDRESS = Address("10.0.0.1", 8080)
ids = count(1)
Task = int | None


class EvidenceFixture:
    """The evidence about one endpoint, with the leases that its slots would have."""

    def __init__(self, *, is_quiet: bool = True) -> None:
        self.evidence = DrainingEvidence()
        self.leases: list[Lease] = []
        self.is_quiet = is_quiet

    def open(self, at: float, *, answered: bool = False, is_uploading: bool = False) -> Lease:
        lease = Lease(next(ids), ADDRESS, 1, at)
        lease.is_uploading = is_uploading
        if answered:
            lease.answered_at = at + 0.01
        self.leases.append(lease)
        self.evidence.opened(lease)
        return lease

    def close(self, lease: Lease) -> None:
        self.leases.remove(lease)
        self.evidence.closed(lease)

    def scrape(self, at: float, *tasks: Task, took_s: float = 0.0) -> list[Lease]:
        """Which leases are over, by a scrape that shows these tasks; None has no number."""
        numbered = tuple(SlotReading(task_id=task) for task in tasks if task is not None)
        observation = Observation(
            address=ADDRESS,
            began_at=at,
            answered_at=at + took_s,
            status=ScrapeStatus.READY,
            slot_readings=numbered,
        )
        return self.evidence.evaluate(observation, len(tasks), self.leases, is_quiet=self.is_quiet)

    def later(self, now: float) -> list[Lease]:
        return self.evidence.reevaluate(self.leases, now)


# The two races


@pytest.mark.parametrize("late_s", [0.005, 0.025, 0.1, ARRIVAL_S])
def test_a_request_in_transit_explains_no_task_of_an_earlier_scrape(late_s: float) -> None:
    """A drains and runs, B was picked and has not arrived: the one busy slot is A's, however long B
    takes."""
    fixture = EvidenceFixture()
    a = fixture.open(1.0)
    fixture.scrape(2.0, 10)
    a.leave(3.0)
    fixture.open(4.0)
    for step in range(5):
        at = 4.0 + late_s + step
        assert fixture.scrape(at, 10) == []
        assert fixture.later(at + RELEASE_S) == []


@pytest.mark.parametrize("late_s", [0.001, 0.05, RELEASE_S * 0.99])
def test_a_release_in_transit_frees_nothing(late_s: float) -> None:
    """A drains and runs, B has ended: its release comes before its slot counts as B's."""
    fixture = EvidenceFixture()
    a, b = fixture.open(1.0), fixture.open(1.5)
    fixture.scrape(2.0, 10, 11)
    a.leave(3.0)
    assert fixture.scrape(4.0, 10) == []
    assert fixture.later(4.0 + late_s) == []
    fixture.close(b)
    assert fixture.later(4.0 + RELEASE_S) == []
    assert fixture.scrape(5.0) == [a]


@pytest.mark.parametrize("late_s", [0.05, RELEASE_S * 0.99])
def test_both_races_without_task_numbers(late_s: float) -> None:
    """Older builds: then only time and counts decide."""
    fixture = EvidenceFixture()
    a = fixture.open(1.0)
    fixture.scrape(2.0, None)
    a.leave(3.0)
    b = fixture.open(4.0)
    assert fixture.scrape(4.0 + late_s, None) == []
    assert fixture.later(4.0 + late_s + RELEASE_S) == [], "B may be on its way"
    fixture.scrape(4.5, None, None)
    assert fixture.scrape(5.0, None) == []
    fixture.close(b)
    assert fixture.later(5.0 + RELEASE_S) == [], "B has ended, A may run"


# What ends a draining lease


def test_a_task_that_began_later_belongs_to_another() -> None:
    """At once, without waiting for any release."""
    fixture = EvidenceFixture()
    a = fixture.open(1.0)
    fixture.scrape(2.0, 10)
    fixture.open(2.5)
    a.leave(3.0)
    assert fixture.scrape(4.0, 11) == [a]


def test_a_lease_that_is_still_open_later_ran_then() -> None:
    """Both tasks are of the same age: a lease that is not released `RELEASE_S` later held the one
    left."""
    fixture = EvidenceFixture()
    a, _ = fixture.open(1.0), fixture.open(1.0)
    fixture.scrape(2.0, 10, 11)
    a.leave(3.0)
    assert fixture.scrape(4.0, 11) == []
    assert fixture.evidence.due_at == 4.0 + RELEASE_S
    assert fixture.later(4.0 + RELEASE_S - 0.01) == []
    assert fixture.later(4.0 + RELEASE_S) == [a]
    assert fixture.evidence.due_at is None


def test_a_very_late_release_is_recognised_by_its_task() -> None:
    """B's task is known and gone, so B explains nothing, however long its client takes to read."""
    fixture = EvidenceFixture()
    b = fixture.open(0.5)
    fixture.scrape(1.0, 9)
    a = fixture.open(1.5)
    fixture.scrape(2.0, 9, 10)
    a.leave(3.0)
    assert fixture.scrape(4.0, 10) == []
    assert fixture.later(6.0) == []
    assert b in fixture.leases


def test_only_as_many_leases_remain_as_tasks_are_left() -> None:
    """Those that left last, because any of them may be the one."""
    fixture = EvidenceFixture()
    first, second, third = (fixture.open(1.0) for _ in range(3))
    fixture.scrape(2.0, 10, 11, 12)
    for lease, at in ((second, 3.0), (first, 3.1), (third, 3.2)):
        lease.leave(at)
    assert fixture.scrape(4.0, 11) == [second, first]


def test_a_scrape_that_began_before_the_client_left_proves_nothing() -> None:
    """Its server had no reason to end the task."""
    fixture = EvidenceFixture()
    a = fixture.open(1.0, answered=True)
    a.leave(3.0)
    assert fixture.scrape(3.0) == []
    assert fixture.scrape(3.1) == [a]


# Arrivals


def test_a_request_whose_client_left_in_transit_may_still_arrive() -> None:
    """Until the time for that has passed, and a scrape after it has shown all tasks."""
    fixture = EvidenceFixture()
    fixture.open(0.0, answered=True)
    fixture.scrape(0.5, 5)
    a = fixture.open(1.0)
    a.leave(1.01)
    for at in (1.05, 1.0 + ARRIVAL_S, 1.1 + ARRIVAL_S):
        assert fixture.scrape(at, 5) == []
    assert fixture.scrape(1.2 + ARRIVAL_S, 5) == [a]


def test_an_idle_server_has_started_all_arrivals() -> None:
    """There is no batch that tasks could wait for."""
    fixture = EvidenceFixture()
    a = fixture.open(1.0)
    a.leave(1.01)
    assert fixture.scrape(1.0 + ARRIVAL_S) == []
    assert fixture.scrape(1.01 + ARRIVAL_S) == [a]


def test_an_upload_may_take_long() -> None:
    """Without a response its arrival is unknown, until its client left."""
    fixture = EvidenceFixture(is_quiet=False)
    a, b = fixture.open(1.0, answered=True), fixture.open(1.0, is_uploading=True)
    fixture.scrape(2.0, 10)
    a.leave(3.0)
    for at in (4.0, 5.0, 60.0):
        assert fixture.scrape(at, 10) == []
        assert fixture.later(at + RELEASE_S) == [], "B may not be there at all"
    b.answered_at = 61.0
    for at in (62.0, 63.0):
        assert fixture.scrape(at, 10) == []
    assert fixture.later(62.0 + RELEASE_S) == [], "headers may come before the task is started"
    assert fixture.scrape(64.0, 10) == []
    assert fixture.later(64.0 + RELEASE_S) == [a], "the task is B's"


def test_as_many_tasks_as_requests_prove_all_arrivals() -> None:
    """Unless some may be foreign."""
    for is_quiet in (True, False):
        fixture = EvidenceFixture(is_quiet=is_quiet)
        a, _ = fixture.open(1.0), fixture.open(1.0)
        fixture.scrape(1.01, 10, 11)
        a.leave(1.02)
        fixture.scrape(1.03, 11)
        assert fixture.later(1.03 + RELEASE_S) == ([a] if is_quiet else [])


def test_new_tasks_show_new_requests() -> None:
    """Also beside a draining lease that has ended."""
    fixture = EvidenceFixture()
    a = fixture.open(1.0)
    fixture.scrape(1.01, 10)
    b, c = fixture.open(1.02), fixture.open(1.02)
    a.leave(1.03)
    assert fixture.scrape(1.04, 11, 12) == [a]
    fixture.close(a)
    b.leave(1.05)
    assert fixture.scrape(1.06, 12) == []
    assert fixture.later(1.06 + RELEASE_S) == [b]
    assert c in fixture.leases


def test_a_moved_request_may_have_arrived_before_it_was_known() -> None:
    """Envoy tried another server first: any task may be its."""
    fixture = EvidenceFixture()
    fixture.scrape(2.0, 10)
    lease = Lease(next(ids), ADDRESS, 1, 1.0)
    lease.answered_at = 2.5
    fixture.leases.append(lease)
    fixture.evidence.opened(lease, is_running=True)
    lease.leave(3.0)
    assert fixture.scrape(4.0, 10) == []
    assert fixture.scrape(5.0) == [lease]


# Odd scrapes


def test_a_scrape_that_overlaps_the_last_one_proves_nothing() -> None:
    """It may have seen the server earlier than the other."""
    fixture = EvidenceFixture()
    fixture.open(0.0, answered=True)
    a = fixture.open(1.0, answered=True)
    a.leave(1.5)
    assert fixture.scrape(2.0, 4, 5, took_s=1.0) == []
    assert fixture.scrape(2.5, 4) == []
    assert fixture.later(3.0 + RELEASE_S) == []
    assert fixture.scrape(3.5, 4) == []
    assert fixture.later(3.5 + RELEASE_S) == [a]


def test_a_new_process_has_other_tasks() -> None:
    """Abandoned tasks ended with the old one, whatever the new one's numbers are."""
    fixture = EvidenceFixture()
    a = fixture.open(1.0, answered=True)
    fixture.scrape(2.0, 10)
    a.leave(3.0)
    fixture.evidence.restarted()
    assert fixture.scrape(4.0, 10) == [a]


def test_two_slots_may_report_one_number() -> None:
    """Nonsense from a server counts as a task without a number."""
    fixture = EvidenceFixture()
    a = fixture.open(1.0, answered=True)
    a.leave(2.0)
    assert fixture.scrape(3.0, 10, 10) == []
    assert fixture.scrape(4.0, 11) == [a]


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8))
def test_nothing_accumulates(scrapes: list[list[int]]) -> None:
    """It remembers the tasks of one scrape, and no lease that ended."""
    fixture = EvidenceFixture()
    for at, tasks in enumerate(scrapes):
        lease = fixture.open(at + 0.1)
        lease.leave(at + 0.2)
        fixture.scrape(at + 0.5, *tasks)
        fixture.close(lease)
    assert len(fixture.evidence._tasks) <= MAX_ENTRIES
    assert not fixture.evidence._earliest and not fixture.evidence._latest
