"""Claims about the rules in examples/: each does what its first line says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from extproc.core.decision import Picked, Queued
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.request import Request
from extproc.core.views.explain import explain
from extproc.rules.active_rules import ActiveRules
from extproc.rules.loading import load_rules
from tests.fakes.small_fleet import SmallFleet

EXAMPLES = Path(__file__).parents[2] / "examples"


def fleet_with(name: str, hour: int = 12) -> SmallFleet:
    """Four machines: gpu-1 and gpu-3 in the EU, gpu-2 and gpu-4 in the US; gpu-4 is cheap."""
    fleet = SmallFleet(4, 4, 4, 4)
    specs = [
        EndpointSpec(
            address=address,
            name=f"gpu-{number}",
            labels=(("region", "eu" if number % 2 else "us"),)
            + ((("price", "cheap"),) if number == 4 else ()),
        )
        for number, address in enumerate(fleet.addresses, start=1)
    ]
    fleet.dispatcher.set_members("test", specs, fleet.now)
    at = time.mktime((2026, 1, 1, hour, 0, 0, 0, 0, -1))
    rules = ActiveRules(load_rules([name], EXAMPLES), unix_time=lambda: at)
    fleet.dispatcher.set_rules(rules, fleet.now)
    return fleet


def served_by(fleet: SmallFleet, count: int, tenant: str = "") -> set[str]:
    """The machines that get that many requests of a tenant; none of them waits."""
    found = set()
    for _ in range(count):
        request = Request(id="r", timeout_s=60.0, tenant=f"client-{tenant}" if tenant else "")
        decision = fleet.dispatcher.submit(request, fleet.now)
        assert isinstance(decision, Picked)
        found.add(fleet.dispatcher.fleet.name_of(decision.lease.address))
        others = {fleet.dispatcher.fleet.name_of(one) for one in decision.fallbacks}
        if tenant:
            assert others <= {"gpu-1", "gpu-2", "gpu-3"}
    return found


def test_pin_team() -> None:
    """The team has two machines, and its ninth request waits though others are idle."""
    fleet = fleet_with("pin_team:PinTeam")
    assert served_by(fleet, 8, "vision") == {"gpu-1", "gpu-2"}
    request = Request(id="r", timeout_s=60.0, tenant="client-vision")
    why = [one.filtered for one in explain(fleet.dispatcher.view, request, fleet.now).candidates]
    assert ("the rule PinTeam excludes it: the team vision has its own machines",) in why
    assert isinstance(fleet.dispatcher.submit(request, fleet.now), Queued)
    assert served_by(fleet, 8) == {"gpu-3", "gpu-4"}


def test_cheap_at_night() -> None:
    """At night the cheap machine comes first as long as it has a free slot, by day all do."""
    fleet = fleet_with("cheap_at_night:CheapAtNight", hour=23)
    assert served_by(fleet, 4) == {"gpu-4"}
    assert served_by(fleet, 12) == {"gpu-1", "gpu-2", "gpu-3"}
    assert len(served_by(fleet_with("cheap_at_night:CheapAtNight", hour=12), 4)) == 4
    request = Request(id="r", timeout_s=60.0)
    fleet = fleet_with("cheap_at_night:CheapAtNight", hour=5)
    first, *others = explain(fleet.dispatcher.view, request, fleet.now).candidates
    assert first.name == "gpu-4"
    scores = [{score.name: score.value for score in one.scores} for one in (first, *others)]
    assert [score["CheapAtNight"] for score in scores] == [0.0, 5.0, 5.0, 5.0]


def test_keep_in_region() -> None:
    """A tenant with a home stays there, one whose home has no machine waits, others go anywhere."""
    fleet = fleet_with("keep_in_region:KeepInRegion")
    assert served_by(fleet, 8, "clinic") == {"gpu-1", "gpu-3"}
    bank = Request(id="r", timeout_s=60.0, tenant="client-bank")
    decision = fleet.dispatcher.submit(bank, fleet.now)
    assert isinstance(decision, Queued)
    note = fleet.dispatcher.view.queue_note(decision.ticket.resolved, bank, fleet.now)
    assert note.endswith("could serve it: the data of bank stays in ch")
    assert served_by(fleet, 8) == {"gpu-2", "gpu-4"}


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_each_is_short(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) < 20
