"""Claims about extproc/core/scheduler/fleet_health.py."""

from __future__ import annotations

import json

from extproc.core.fleet.endpoint import Intent
from extproc.core.observation import ScrapeStatus
from extproc.core.scheduler.fleet_health import FleetHealth, fleet_health
from tests.fakes.small_fleet import SmallFleet


def shown(fleet: SmallFleet) -> tuple[int, int, int]:
    health = fleet_health(fleet.dispatcher)
    return health.http_status, health.idle, health.processing


def test_the_slots_of_all_endpoints_that_get_requests() -> None:
    """Foreign requests count as those of this picker do."""
    fleet = SmallFleet(2, 4)
    assert shown(fleet) == (200, 6, 0)
    lease = fleet.pick(weight_slots=2)
    assert shown(fleet) == (200, 4, 2)
    others = next(address for address in fleet.addresses if address != lease.address)
    fleet.now += 1
    fleet.scrape(others, busy=1)
    assert shown(fleet) == (200, 3, 3)


def test_a_full_fleet_serves() -> None:
    """Requests are queued: that is no reason to take the fleet out of a balancer."""
    fleet = SmallFleet(1)
    fleet.pick()
    assert shown(fleet) == (200, 0, 1)
    assert json.loads(fleet_health(fleet.dispatcher).as_json()) == {
        "status": "no slot available",
        "slots_idle": 0,
        "slots_processing": 1,
    }


def test_who_gets_no_requests_has_no_slots() -> None:
    """A server that is down or drained, one that has not reported yet, and an empty fleet."""
    assert shown(SmallFleet()) == (503, 0, 0)
    fleet = SmallFleet(2, 3)
    fleet.add(None)
    fleet.dispatcher.set_intent(fleet.addresses[0], Intent.DRAINING, fleet.now)
    assert shown(fleet) == (200, 3, 0)
    fleet.now += 1
    fleet.scrape(fleet.addresses[1], busy=None, status=ScrapeStatus.UNREACHABLE)
    assert shown(fleet) == (503, 0, 0)


def test_the_status_in_one_word() -> None:
    assert json.loads(FleetHealth(idle=1, processing=9).as_json())["status"] == "ok"
    assert json.loads(FleetHealth(idle=0, processing=0).as_json())["status"] == "error"
