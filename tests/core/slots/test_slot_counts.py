"""Claims about extproc/core/slots/slot_counts.py: what is shown of the slots of one server."""

from __future__ import annotations

from extproc.core.fleet.endpoint import Intent
from extproc.core.fleet.health import Health
from extproc.core.observation import ScrapeStatus
from extproc.core.slots.slot_counts import SlotCounts
from tests.fakes.small_fleet import SmallFleet


def counts(fleet: SmallFleet) -> SlotCounts:
    return fleet.dispatcher.slot_counts(fleet.endpoint(fleet.addresses[0]))


def busy_fleet() -> SmallFleet:
    """One server of four slots: one request runs, one client left, one slot is foreign."""
    fleet = SmallFleet(4)
    fleet.pick()
    left = fleet.pick()
    fleet.now += 1.0
    fleet.scrape(fleet.addresses[0], busy=3)
    fleet.abandon(left)
    return fleet


def test_the_slots_of_a_server_that_serves() -> None:
    """A draining lease is one of the leased slots."""
    expected = SlotCounts(total=4, leased=2, draining=1, foreign=1, idle=1, unusable=0)
    assert counts(busy_fleet()) == expected


def test_the_slots_of_a_dead_server_are_unusable() -> None:
    """Neither foreign, nor leased for clients that left; those that still wait hold theirs, until
    their streams end."""
    fleet = busy_fleet()
    lease = next(iter(fleet.account(fleet.addresses[0]).leases.values()))
    fleet.now += 1.0
    fleet.scrape(fleet.addresses[0], busy=None, status=ScrapeStatus.UNREACHABLE)
    assert fleet.endpoint(fleet.addresses[0]).health is Health.DOWN
    expected = SlotCounts(total=4, leased=1, draining=0, foreign=0, idle=0, unusable=3)
    assert counts(fleet) == expected
    fleet.abandon(lease)
    expected = SlotCounts(total=4, leased=0, draining=0, foreign=0, idle=0, unusable=4)
    assert counts(fleet) == expected


def test_a_drained_server_still_works() -> None:
    """Its requests run on, so only its free slots are unusable."""
    fleet = busy_fleet()
    fleet.dispatcher.set_intent(fleet.addresses[0], Intent.DRAINING, fleet.now)
    expected = SlotCounts(total=4, leased=2, draining=1, foreign=1, idle=0, unusable=1)
    assert counts(fleet) == expected
