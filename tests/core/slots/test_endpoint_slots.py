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
    endpoint = EndpointSlots(0.0)
    scrape(endpoint, 0.0, 0.0, slots=slots, busy=0)
    return endpoint


def opened(endpoint: EndpointSlots, at: float, weight: int = 1) -> Lease:
    lease = Lease(next(ids), ADDRESS, weight, at)
    endpoint.add(lease)
    return lease


def closed(endpoint: EndpointSlots, lease: Lease, at: float) -> None:
    lease.close(1.0)
    endpoint.remove(lease, at)


def scrape(
    endpoint: EndpointSlots,
    began_at: float,
    answered_at: float,
    *,
    busy: int | None,
    slots: int | None = None,
    instance: str | None = None,
    tasks: tuple[int, ...] = (),
) -> list[Lease]:
    return endpoint.observe(
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
    endpoint = endpoint_slots(4)
    heavy, light = opened(endpoint, 1.0, 2), opened(endpoint, 1.0)
    assert (endpoint.leased_slots, endpoint.free_slots) == (3, 1)
    closed(endpoint, heavy, 2.0)
    assert (endpoint.leased_slots, endpoint.free_slots) == (1, 3)
    closed(endpoint, light, 2.0)
    assert (endpoint.leased_slots, endpoint.free_slots, endpoint.leases) == (0, 4, {})


def test_an_unknown_lease_cannot_be_removed() -> None:
    """A lease that is not here is a bug of the caller."""
    endpoint = endpoint_slots()
    lease = opened(endpoint, 1.0)
    closed(endpoint, lease, 2.0)
    with pytest.raises(KeyError):
        endpoint.remove(lease, 3.0)
    assert endpoint.leased_slots == 0


# foreign


def test_a_new_lease_is_not_counted_twice() -> None:
    """Paddler's #56: a lease younger than the scrape explains its own busy slot."""
    endpoint = endpoint_slots(4)
    opened(endpoint, 1.0)
    scrape(endpoint, 0.5, 1.5, busy=1)
    assert (endpoint.foreign_slots, endpoint.free_slots) == (0, 3)
    scrape(endpoint, 2.0, 2.1, busy=1)
    assert (endpoint.foreign_slots, endpoint.free_slots) == (0, 3)


def test_a_freed_slot_never_counts_as_busy() -> None:
    """A lease that closed while the server was answering explains a busy slot too."""
    endpoint = endpoint_slots(4)
    lease = opened(endpoint, 1.0)
    closed(endpoint, lease, 5.0)
    scrape(endpoint, 4.9, 5.1, busy=1)
    assert (endpoint.foreign_slots, endpoint.free_slots) == (0, 4)
    scrape(endpoint, 5.2, 5.3, busy=1)
    assert endpoint.foreign_slots == 1, "by now it is somebody else's"


def test_a_lease_that_closed_as_the_scrape_began_explains_it() -> None:
    """The interval is closed at both ends."""
    endpoint = endpoint_slots(4)
    closed(endpoint, opened(endpoint, 1.0), 5.0)
    opened(endpoint, 6.0)
    closed(endpoint, opened(endpoint, 6.0), 6.0)
    scrape(endpoint, 5.0, 6.0, busy=3)
    assert endpoint.foreign_slots == 0


def test_a_lease_opened_after_the_answer_explains_nothing() -> None:
    """What was busy before our request arrived is not ours."""
    endpoint = endpoint_slots(4)
    opened(endpoint, 2.0)
    scrape(endpoint, 1.0, 1.5, busy=1)
    assert (endpoint.foreign_slots, endpoint.free_slots) == (1, 2)


def test_a_lease_that_opened_and_closed_after_the_answer_explains_nothing() -> None:
    """The same for one that is closed already when the answer is applied."""
    endpoint = endpoint_slots(4)
    closed(endpoint, opened(endpoint, 2.0), 2.1)
    scrape(endpoint, 1.0, 1.5, busy=1)
    assert endpoint.foreign_slots == 1


def test_foreign_slots_are_the_rest() -> None:
    """busy - ours, never below 0."""
    endpoint = endpoint_slots(4)
    opened(endpoint, 1.0)
    scrape(endpoint, 2.0, 2.0, busy=3)
    assert (endpoint.foreign_slots, endpoint.free_slots) == (2, 1)
    scrape(endpoint, 3.0, 3.0, busy=0)
    assert (endpoint.foreign_slots, endpoint.free_slots) == (0, 3)


def test_known_busy_stays_busy() -> None:
    """A scrape that could not count changes no earlier count."""
    endpoint = endpoint_slots(4)
    scrape(endpoint, 1.0, 1.0, busy=3)
    scrape(endpoint, 2.0, 2.0, busy=None)
    assert (endpoint.foreign_slots, endpoint.reports_busy_slots) == (3, True)


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
    endpoint = endpoint_slots(64)
    answered_at = began_at + took_s
    explained = 0
    for opened_at, closed_at, weight in sorted(leases, key=lambda entry: entry[1]):
        lease = opened(endpoint, opened_at, weight)
        if opened_at <= closed_at <= answered_at:
            closed(endpoint, lease, closed_at)
            is_seen = closed_at >= began_at and opened_at <= answered_at
        else:
            is_seen = opened_at <= answered_at
        explained += weight * is_seen
    scrape(endpoint, began_at, answered_at, busy=busy)
    assert endpoint.foreign_slots == max(0, busy - explained)
    assert endpoint.free_slots == max(0, 64 - endpoint.leased_slots - endpoint.foreign_slots)


# slots


def test_slots_shrink_and_grow() -> None:
    """Running leases continue at a smaller server; `free` waits until it is positive again."""
    endpoint = endpoint_slots(4)
    leases = [opened(endpoint, 1.0) for _ in range(4)]
    scrape(endpoint, 2.0, 2.0, busy=4, slots=2)
    assert (endpoint.slots, endpoint.leased_slots, endpoint.free_slots) == (2, 4, 0)
    for lease in leases[:3]:
        closed(endpoint, lease, 3.0)
    assert endpoint.free_slots == 1
    scrape(endpoint, 4.0, 4.0, busy=1, slots=8)
    assert endpoint.free_slots == 7


def test_unreported_slots_stay() -> None:
    """A scrape that does not report the slot count keeps the last one."""
    endpoint = endpoint_slots(4)
    scrape(endpoint, 1.0, 1.0, busy=0)
    assert endpoint.slots == 4


# order of scrapes


def test_an_outdated_scrape_changes_nothing() -> None:
    """Only a scrape that began last counts, however long the others took."""
    endpoint = endpoint_slots(4)
    scrape(endpoint, 2.0, 2.1, busy=3, slots=6)
    assert scrape(endpoint, 1.0, 9.0, busy=0, slots=1) == []
    assert (endpoint.slots, endpoint.foreign_slots) == (6, 3)


def test_scrapes_from_before_a_return_are_ignored() -> None:
    """An endpoint that returned is not changed by a scrape from before."""
    endpoint = EndpointSlots(5.0)
    scrape(endpoint, 4.0, 6.0, busy=3, slots=4)
    assert (endpoint.slots, endpoint.reports_busy_slots) == (0, False)


def test_a_scrape_that_has_begun_can_be_ignored() -> None:
    """After an event, only scrapes that begin later count; the bound never moves back."""
    endpoint = endpoint_slots(4)
    endpoint.ignore_before(3.0)
    endpoint.ignore_before(2.0)
    scrape(endpoint, 2.5, 4.0, busy=2)
    assert endpoint.foreign_slots == 0
    scrape(endpoint, 3.0, 4.0, busy=2)
    assert endpoint.foreign_slots == 2


# draining


def test_a_draining_lease_is_freed_by_a_later_scrape() -> None:
    """Only a scrape that began after the client left may show its slot free."""
    endpoint = endpoint_slots(4)
    lease = opened(endpoint, 1.0)
    lease.leave(3.0)
    assert endpoint.has_draining
    assert scrape(endpoint, 2.0, 4.0, busy=0) == [], "it may have been asked before"
    assert scrape(endpoint, 3.0, 4.0, busy=0) == [], "the same moment is not after"
    assert scrape(endpoint, 3.1, 4.0, busy=1) == [], "its server is still at it"
    assert (endpoint.foreign_slots, endpoint.free_slots) == (0, 3)
    assert scrape(endpoint, 4.2, 4.3, busy=0) == [lease]


def test_foreign_slots_do_not_hold_a_draining_lease() -> None:
    """What was foreign before the lease began cannot be its."""
    endpoint = endpoint_slots(4)
    scrape(endpoint, 0.5, 0.5, busy=1, tasks=(7,))
    lease = opened(endpoint, 1.0)
    lease.leave(2.0)
    scrape(endpoint, 2.5, 2.5, busy=1, tasks=(7,))
    assert scrape(endpoint, 3.0, 3.0, busy=1, tasks=(7,)) == [lease]
    assert endpoint.foreign_slots == 1


def test_the_first_to_leave_is_freed_first() -> None:
    """One busy slot holds one draining lease: that of the client that left last."""
    endpoint = endpoint_slots(4)
    first, second, third = (opened(endpoint, 1.0) for _ in range(3))
    for lease, left_at in ((second, 2.0), (first, 2.1), (third, 2.2)):
        lease.leave(left_at)
    scrape(endpoint, 2.9, 2.9, busy=3)
    assert scrape(endpoint, 3.0, 3.0, busy=1) == [second, first]


def test_a_multi_slot_draining_lease_is_freed_as_a_whole() -> None:
    """It holds all its slots while any of them may be busy."""
    endpoint = endpoint_slots(4)
    lease = opened(endpoint, 1.0, 3)
    lease.leave(2.0)
    assert scrape(endpoint, 3.0, 3.0, busy=1) == []
    assert endpoint.free_slots == 1
    assert scrape(endpoint, 4.0, 4.0, busy=0) == [lease]


def test_a_freed_lease_does_not_hide_a_foreign_slot() -> None:
    """A foreign task that was there before stays foreign, also once that lease is over."""
    endpoint = endpoint_slots(4)
    scrape(endpoint, 0.5, 0.5, busy=1, tasks=(7,))
    running, lease = opened(endpoint, 1.0), opened(endpoint, 1.0)
    scrape(endpoint, 2.0, 2.0, busy=3, tasks=(7, 8, 9))
    lease.leave(2.5)
    for began_at in (3.0, 3.5):
        assert scrape(endpoint, began_at, began_at, busy=2, tasks=(7, 8)) == []
    assert (endpoint.foreign_slots, endpoint.free_slots) == (1, 1)
    assert endpoint.next_recheck == 3.0 + RELEASE_S
    assert endpoint.recheck(3.5) == [lease]
    assert running in endpoint.leases.values()
    assert endpoint.foreign_slots == 1


# foreign tasks


def test_a_request_in_transit_explains_no_task_that_was_there_before() -> None:
    """Its slot would be given to the next request, and the server would have one too many."""
    endpoint = endpoint_slots(2)
    scrape(endpoint, 1.0, 1.0, busy=1, tasks=(7,))
    opened(endpoint, 2.0)
    scrape(endpoint, 3.0, 3.0, busy=1, tasks=(7,))
    assert (endpoint.foreign_slots, endpoint.free_slots) == (1, 0)
    scrape(endpoint, 4.0, 4.0, busy=2, tasks=(7, 8))
    assert (endpoint.foreign_slots, endpoint.free_slots) == (1, 0)
    scrape(endpoint, 5.0, 5.0, busy=1, tasks=(8,))
    assert (endpoint.foreign_slots, endpoint.free_slots) == (0, 1)


def test_a_task_from_before_a_closed_lease_is_foreign() -> None:
    """A lease that ended while the scrape was under way explains new tasks only."""
    endpoint = endpoint_slots(3)
    scrape(endpoint, 1.0, 1.0, busy=1, tasks=(7,))
    lease = opened(endpoint, 2.0, weight=2)
    closed(endpoint, lease, 3.5)
    scrape(endpoint, 3.0, 4.0, busy=2, tasks=(7, 8))
    assert endpoint.foreign_slots == 1


def test_a_task_that_a_lease_may_own_is_not_foreign() -> None:
    """The scrape that showed it began before the lease, and was applied after it."""
    endpoint = endpoint_slots(3)
    opened(endpoint, 2.0)
    scrape(endpoint, 1.0, 3.0, busy=1, tasks=(7,))
    opened(endpoint, 4.0)
    scrape(endpoint, 5.0, 5.0, busy=1, tasks=(7,))
    assert endpoint.foreign_slots == 0


def test_a_moved_request_may_own_any_task() -> None:
    """It ran here before its lease came."""
    endpoint = endpoint_slots(3)
    scrape(endpoint, 1.0, 1.0, busy=1, tasks=(7,))
    endpoint.add(Lease(next(ids), ADDRESS, 1, 0.5), is_running=True)
    scrape(endpoint, 2.0, 2.0, busy=1, tasks=(7,))
    assert endpoint.foreign_slots == 0


def test_a_scrape_that_overlaps_the_last_one_shows_foreign_tasks_too() -> None:
    endpoint = endpoint_slots(3)
    scrape(endpoint, 1.0, 3.0, busy=1, tasks=(7,))
    opened(endpoint, 3.5)
    scrape(endpoint, 2.0, 4.0, busy=1, tasks=(7,))
    assert endpoint.foreign_slots == 1
    scrape(endpoint, 2.5, 4.5, busy=1, tasks=(8,))
    assert endpoint.foreign_slots == 0


# caps


def test_a_cap_leaves_a_busy_slot_busy() -> None:
    """Until the next scrape: no request is sent to a slot known to be busy."""
    endpoint = endpoint_slots(2)
    lease = opened(endpoint, 1.0)
    lease.leave(2.0)
    scrape(endpoint, 3.0, 3.0, busy=1)
    endpoint.write_off(lease)
    closed(endpoint, lease, 12.0)
    assert (endpoint.leased_slots, endpoint.foreign_slots, endpoint.free_slots) == (0, 1, 1)
    scrape(endpoint, 13.0, 13.0, busy=0)
    assert endpoint.free_slots == 2


def test_a_cap_without_a_later_scrape_frees_the_slot() -> None:
    """Nothing but its age suggests that it is busy."""
    endpoint = endpoint_slots(2)
    lease = opened(endpoint, 1.0)
    scrape(endpoint, 2.0, 2.0, busy=1)
    lease.leave(2.0)
    endpoint.write_off(lease)
    assert endpoint.foreign_slots == 0


def test_a_cap_at_a_blind_server_frees_the_slot() -> None:
    """A server that reports nothing has no busy slot to stay busy."""
    endpoint = EndpointSlots(0.0)
    scrape(endpoint, 0.0, 0.0, busy=None, slots=2)
    lease = opened(endpoint, 1.0)
    lease.leave(2.0)
    scrape(endpoint, 3.0, 3.0, busy=None, slots=2)
    endpoint.write_off(lease)
    assert (endpoint.reports_busy_slots, endpoint.foreign_slots) == (False, 0)


# another process


def test_a_replaced_server_begins_without_foreign_slots() -> None:
    """Foreign requests and draining leases ended with the old process; open leases end by
    themselves."""
    endpoint = endpoint_slots(4)
    running, left = opened(endpoint, 1.0), opened(endpoint, 1.0)
    left.leave(1.5)
    scrape(endpoint, 2.0, 2.0, busy=4, instance="a")
    assert endpoint.foreign_slots == 2
    assert scrape(endpoint, 3.0, 3.0, busy=None, slots=4, instance="b") == [left]
    assert (endpoint.foreign_slots, endpoint.reports_busy_slots) == (0, False)
    assert list(endpoint.leases.values()) == [running, left], "the ledger closes them"


def test_a_replaced_server_that_hides_its_slots_has_no_foreign_ones() -> None:
    """A scrape of the old process that was to be evaluated again says nothing about the new one,
    and no later scrape would correct it."""
    endpoint = endpoint_slots(2)
    scrape(endpoint, 0.5, 0.5, busy=0, instance="1")
    running, lease = opened(endpoint, 1.0), opened(endpoint, 1.0)
    scrape(endpoint, 2.0, 2.0, busy=2, tasks=(8, 9), instance="1")
    lease.leave(2.5)
    assert scrape(endpoint, 3.0, 3.0, busy=1, tasks=(8,), instance="1") == []
    assert scrape(endpoint, 3.05, 3.05, busy=None, slots=2, instance="2") == [lease]
    assert endpoint.recheck(3.0 + RELEASE_S) == []
    closed(endpoint, running, 3.2)
    assert endpoint.foreign_slots == 0


def test_a_replaced_server_is_counted_like_any_other() -> None:
    """Busy slots of the new process are explained by the same leases, or hold draining ones."""
    endpoint = endpoint_slots(4)
    scrape(endpoint, 0.5, 0.5, busy=2, instance="a")
    closed(endpoint, opened(endpoint, 1.0), 2.5)
    lease = opened(endpoint, 1.0)
    lease.leave(1.5)
    assert scrape(endpoint, 2.0, 3.0, busy=1, instance="b") == []
    assert (endpoint.foreign_slots, endpoint.reports_busy_slots) == (0, True)
    assert scrape(endpoint, 4.0, 4.0, busy=0, instance="c") == [lease]


def test_without_an_instance_name_no_server_is_replaced() -> None:
    """The first name, no name, and the same name again are no new process."""
    endpoint = endpoint_slots(4)
    scrape(endpoint, 1.0, 1.0, busy=2)
    for moment, instance in ((2.0, "a"), (3.0, None), (4.0, "a")):
        scrape(endpoint, moment, moment, busy=None, instance=instance)
        assert endpoint.foreign_slots == 2


# memory


def test_closings_are_forgotten() -> None:
    """Ended leases do not accumulate at a server, scraped or not."""
    endpoint = endpoint_slots(4)
    for step in range(10_000):
        closed(endpoint, opened(endpoint, step), float(step))
    assert len(endpoint._closed) <= CLOSED_MEMORY_S + 1
    scrape(endpoint, 10_000.0, 10_000.0, busy=None)
    assert len(endpoint._closed) == 0
