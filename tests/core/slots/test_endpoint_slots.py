"""Claims about extproc/core/slots/endpoint_slots.py: the three formulas, each term by itself."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus, SlotReading
from extproc.core.slots.draining_evidence import RELEASE_S
from extproc.core.slots.endpoint_slots import CLOSED_MEMORY_S, EndpointSlots, can_fit
from extproc.core.slots.lease import Lease

ADDRESS = Address("10.0.0.1", 8080)
ids = count(1)


def endpoint_slots(slots: int = 4) -> EndpointSlots:
    books = EndpointSlots(0.0)
    look(books, 0.0, 0.0, slots=slots, busy=0)
    return books


def opened(books: EndpointSlots, at: float, weight: int = 1) -> Lease:
    lease = Lease(next(ids), ADDRESS, weight, at)
    books.add(lease)
    return lease


def closed(books: EndpointSlots, lease: Lease, at: float) -> None:
    lease.close()
    books.remove(lease, at)


def look(
    books: EndpointSlots,
    began_at: float,
    answered_at: float,
    *,
    busy: int | None,
    slots: int | None = None,
    instance: str | None = None,
    tasks: tuple[int, ...] = (),
) -> list[Lease]:
    return books.observe(
        Observation(
            address=ADDRESS,
            began_at=began_at,
            answered_at=answered_at,
            status=ScrapeStatus.READY,
            slots=slots,
            busy_slots=busy,
            instance=instance,
            slot_readings=tuple(SlotReading(task_id=task) for task in tasks),
        )
    )


# fits


@pytest.mark.parametrize(
    ("weight", "free", "slots", "expected"),
    [
        (1, 1, 4, True),
        (1, 0, 4, False),
        (3, 2, 4, False),
        (3, 3, 4, True),
        (9, 3, 4, False),
        (9, 4, 4, True),
        (1, 0, 0, False),
    ],
)
def test_fits(weight: int, free: int, slots: int, expected: bool) -> None:
    """A request needs its weight free, or all slots of a smaller server; without slots nothing
    fits."""
    assert can_fit(weight, free, slots) is expected


# leased


def test_leases_take_their_weight() -> None:
    """`leased` is the sum of the weights, and `free` what they leave."""
    books = endpoint_slots(4)
    heavy, light = opened(books, 1.0, 2), opened(books, 1.0)
    assert (books.leased_slots, books.free_slots) == (3, 1)
    closed(books, heavy, 2.0)
    assert (books.leased_slots, books.free_slots) == (1, 3)
    closed(books, light, 2.0)
    assert (books.leased_slots, books.free_slots, books.leases) == (0, 4, {})


def test_an_unknown_lease_cannot_be_removed() -> None:
    """A lease that is not here is a bug of the caller."""
    books = endpoint_slots()
    lease = opened(books, 1.0)
    closed(books, lease, 2.0)
    with pytest.raises(KeyError):
        books.remove(lease, 3.0)
    assert books.leased_slots == 0


# foreign


def test_a_new_lease_is_not_counted_twice() -> None:
    """Paddler's #56: a lease younger than the scrape explains its own busy slot."""
    books = endpoint_slots(4)
    opened(books, 1.0)
    look(books, 0.5, 1.5, busy=1)
    assert (books.foreign_slots, books.free_slots) == (0, 3)
    look(books, 2.0, 2.1, busy=1)
    assert (books.foreign_slots, books.free_slots) == (0, 3)


def test_a_freed_slot_does_not_look_busy() -> None:
    """A lease that closed while the server was answering explains a busy slot too."""
    books = endpoint_slots(4)
    lease = opened(books, 1.0)
    closed(books, lease, 5.0)
    look(books, 4.9, 5.1, busy=1)
    assert (books.foreign_slots, books.free_slots) == (0, 4)
    look(books, 5.2, 5.3, busy=1)
    assert books.foreign_slots == 1, "by now it is somebody else's"


def test_a_lease_that_closed_as_the_scrape_began_explains_it() -> None:
    """The interval is closed at both ends."""
    books = endpoint_slots(4)
    closed(books, opened(books, 1.0), 5.0)
    opened(books, 6.0)
    closed(books, opened(books, 6.0), 6.0)
    look(books, 5.0, 6.0, busy=3)
    assert books.foreign_slots == 0


def test_a_lease_opened_after_the_answer_explains_nothing() -> None:
    """What was busy before our request arrived is not ours."""
    books = endpoint_slots(4)
    opened(books, 2.0)
    look(books, 1.0, 1.5, busy=1)
    assert (books.foreign_slots, books.free_slots) == (1, 2)


def test_a_lease_that_opened_and_closed_after_the_answer_explains_nothing() -> None:
    """The same for one that is closed already when the answer is applied."""
    books = endpoint_slots(4)
    closed(books, opened(books, 2.0), 2.1)
    look(books, 1.0, 1.5, busy=1)
    assert books.foreign_slots == 1


def test_foreign_slots_are_the_rest() -> None:
    """busy - ours, never below 0."""
    books = endpoint_slots(4)
    opened(books, 1.0)
    look(books, 2.0, 2.0, busy=3)
    assert (books.foreign_slots, books.free_slots) == (2, 1)
    look(books, 3.0, 3.0, busy=0)
    assert (books.foreign_slots, books.free_slots) == (0, 3)


def test_known_busy_stays_busy() -> None:
    """A scrape that could not count changes no earlier count."""
    books = endpoint_slots(4)
    look(books, 1.0, 1.0, busy=3)
    look(books, 2.0, 2.0, busy=None)
    assert (books.foreign_slots, books.reports_busy_slots) == (3, True)


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.integers(1, 3)), max_size=12),
    st.floats(0, 10),
    st.floats(0, 3),
    st.integers(0, 40),
)
def test_the_formula(
    leases: list[tuple[float, float, int]], began_at: float, took_s: float, busy: int
) -> None:
    """foreign = max(0, busy - weights of all leases open at any moment of the scrape)."""
    books = endpoint_slots(64)
    answered_at = began_at + took_s
    explained = 0
    for opened_at, closed_at, weight in sorted(leases, key=lambda entry: entry[1]):
        lease = opened(books, opened_at, weight)
        if opened_at <= closed_at <= answered_at:
            closed(books, lease, closed_at)
            is_seen = closed_at >= began_at and opened_at <= answered_at
        else:
            is_seen = opened_at <= answered_at
        explained += weight * is_seen
    look(books, began_at, answered_at, busy=busy)
    assert books.foreign_slots == max(0, busy - explained)
    assert books.free_slots == max(0, 64 - books.leased_slots - books.foreign_slots)


# slots


def test_slots_shrink_and_grow() -> None:
    """Running leases continue at a smaller server; `free` waits until it is positive again."""
    books = endpoint_slots(4)
    leases = [opened(books, 1.0) for _ in range(4)]
    look(books, 2.0, 2.0, busy=4, slots=2)
    assert (books.slots, books.leased_slots, books.free_slots) == (2, 4, 0)
    for lease in leases[:3]:
        closed(books, lease, 3.0)
    assert books.free_slots == 1
    look(books, 4.0, 4.0, busy=1, slots=8)
    assert books.free_slots == 7


def test_unreported_slots_stay() -> None:
    """A scrape that does not report the slot count keeps the last one."""
    books = endpoint_slots(4)
    look(books, 1.0, 1.0, busy=0)
    assert books.slots == 4


# order of scrapes


def test_an_outdated_scrape_changes_nothing() -> None:
    """Only a scrape that began last counts, however long the others took."""
    books = endpoint_slots(4)
    look(books, 2.0, 2.1, busy=3, slots=6)
    assert look(books, 1.0, 9.0, busy=0, slots=1) == []
    assert (books.slots, books.foreign_slots) == (6, 3)


def test_scrapes_from_before_a_return_are_ignored() -> None:
    """An endpoint that returned is not changed by a scrape from before."""
    books = EndpointSlots(5.0)
    look(books, 4.0, 6.0, busy=3, slots=4)
    assert (books.slots, books.reports_busy_slots) == (0, False)


def test_a_scrape_that_has_begun_can_be_ignored() -> None:
    """After an event, only scrapes that begin later count; the bound never moves back."""
    books = endpoint_slots(4)
    books.ignore_before(3.0)
    books.ignore_before(2.0)
    look(books, 2.5, 4.0, busy=2)
    assert books.foreign_slots == 0
    look(books, 3.0, 4.0, busy=2)
    assert books.foreign_slots == 2


# draining


def test_a_draining_lease_is_freed_by_a_later_scrape() -> None:
    """Only a scrape that began after the client left may show its slot free."""
    books = endpoint_slots(4)
    lease = opened(books, 1.0)
    lease.leave(3.0)
    assert books.has_draining
    assert look(books, 2.0, 4.0, busy=0) == [], "it may have been asked before"
    assert look(books, 3.0, 4.0, busy=0) == [], "the same moment is not after"
    assert look(books, 3.1, 4.0, busy=1) == [], "its server is still at it"
    assert (books.foreign_slots, books.free_slots) == (0, 3)
    assert look(books, 4.2, 4.3, busy=0) == [lease]


def test_foreign_slots_do_not_hold_a_draining_lease() -> None:
    """What was foreign before the lease began cannot be its."""
    books = endpoint_slots(4)
    look(books, 0.5, 0.5, busy=1, tasks=(7,))
    lease = opened(books, 1.0)
    lease.leave(2.0)
    look(books, 2.5, 2.5, busy=1, tasks=(7,))
    assert look(books, 3.0, 3.0, busy=1, tasks=(7,)) == [lease]
    assert books.foreign_slots == 1


def test_the_first_to_leave_is_freed_first() -> None:
    """One busy slot holds one draining lease: that of the client that left last."""
    books = endpoint_slots(4)
    first, second, third = (opened(books, 1.0) for _ in range(3))
    for lease, left_at in ((second, 2.0), (first, 2.1), (third, 2.2)):
        lease.leave(left_at)
    look(books, 2.9, 2.9, busy=3)
    assert look(books, 3.0, 3.0, busy=1) == [second, first]


def test_a_multi_slot_draining_lease_is_freed_as_a_whole() -> None:
    """It holds all its slots while any of them may be busy."""
    books = endpoint_slots(4)
    lease = opened(books, 1.0, 3)
    lease.leave(2.0)
    assert look(books, 3.0, 3.0, busy=1) == []
    assert books.free_slots == 1
    assert look(books, 4.0, 4.0, busy=0) == [lease]


def test_a_freed_lease_does_not_hide_a_foreign_slot() -> None:
    """A foreign task that the draining lease explained is foreign once that lease is over."""
    books = endpoint_slots(4)
    look(books, 0.5, 0.5, busy=1, tasks=(7,))
    running, lease = opened(books, 1.0), opened(books, 1.0)
    look(books, 2.0, 2.0, busy=3, tasks=(7, 8, 9))
    lease.leave(2.5)
    for began_at in (3.0, 3.5):
        assert look(books, began_at, began_at, busy=2, tasks=(7, 8)) == []
    assert (books.foreign_slots, books.free_slots) == (0, 2)
    assert books.next_recheck == 3.0 + RELEASE_S
    assert books.recheck(3.5) == [lease]
    assert running in books.leases.values()
    assert books.foreign_slots == 1


# caps


def test_a_cap_leaves_a_busy_slot_busy() -> None:
    """Until the next scrape: no request is sent to a slot known to be busy."""
    books = endpoint_slots(2)
    lease = opened(books, 1.0)
    lease.leave(2.0)
    look(books, 3.0, 3.0, busy=1)
    books.write_off(lease)
    closed(books, lease, 12.0)
    assert (books.leased_slots, books.foreign_slots, books.free_slots) == (0, 1, 1)
    look(books, 13.0, 13.0, busy=0)
    assert books.free_slots == 2


def test_a_cap_without_a_later_scrape_frees_the_slot() -> None:
    """Nothing but its age suggests that it is busy."""
    books = endpoint_slots(2)
    lease = opened(books, 1.0)
    look(books, 2.0, 2.0, busy=1)
    lease.leave(2.0)
    books.write_off(lease)
    assert books.foreign_slots == 0


def test_a_cap_at_a_blind_server_frees_the_slot() -> None:
    """A server that reports nothing has no busy slot to stay busy."""
    books = EndpointSlots(0.0)
    look(books, 0.0, 0.0, busy=None, slots=2)
    lease = opened(books, 1.0)
    lease.leave(2.0)
    look(books, 3.0, 3.0, busy=None, slots=2)
    books.write_off(lease)
    assert (books.reports_busy_slots, books.foreign_slots) == (False, 0)


# another process


def test_a_replaced_server_begins_without_foreign_slots() -> None:
    """Foreign requests and draining leases ended with the old process; open leases end by
    themselves."""
    books = endpoint_slots(4)
    running, left = opened(books, 1.0), opened(books, 1.0)
    left.leave(1.5)
    look(books, 2.0, 2.0, busy=4, instance="a")
    assert books.foreign_slots == 2
    assert look(books, 3.0, 3.0, busy=None, slots=4, instance="b") == [left]
    assert (books.foreign_slots, books.reports_busy_slots) == (0, False)
    assert list(books.leases.values()) == [running, left], "the ledger closes them"


def test_a_replaced_server_is_counted_like_any_other() -> None:
    """Busy slots of the new process are explained by the same leases, or hold draining ones."""
    books = endpoint_slots(4)
    look(books, 0.5, 0.5, busy=2, instance="a")
    closed(books, opened(books, 1.0), 2.5)
    lease = opened(books, 1.0)
    lease.leave(1.5)
    assert look(books, 2.0, 3.0, busy=1, instance="b") == []
    assert (books.foreign_slots, books.reports_busy_slots) == (0, True)
    assert look(books, 4.0, 4.0, busy=0, instance="c") == [lease]


def test_without_an_instance_name_no_server_is_replaced() -> None:
    """The first name, no name, and the same name again are no new process."""
    books = endpoint_slots(4)
    look(books, 1.0, 1.0, busy=2)
    for moment, instance in ((2.0, "a"), (3.0, None), (4.0, "a")):
        look(books, moment, moment, busy=None, instance=instance)
        assert books.foreign_slots == 2


# memory


def test_closings_are_forgotten() -> None:
    """Ended leases do not accumulate at a server, scraped or not."""
    books = endpoint_slots(4)
    for step in range(10_000):
        closed(books, opened(books, step), float(step))
    assert len(books._closed) <= CLOSED_MEMORY_S + 1
    look(books, 10_000.0, 10_000.0, busy=None)
    assert len(books._closed) == 0
