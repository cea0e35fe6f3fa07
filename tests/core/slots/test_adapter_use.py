"""Claims about extproc/core/slots/adapter_use.py, through running requests."""

from __future__ import annotations

from extproc.core.address import Address
from extproc.core.request import Adapters
from tests.fakes.steered_fleet import SteeredFleet

BOTH = {"models": ["m"], "adapters": ["bard", "pirate"]}


def is_mixed(fleet: SteeredFleet, address: Address, adapters: Adapters) -> bool:
    return fleet.dispatcher.state.in_flight.adapters.has_others(address, adapters)


def test_a_request_with_another_adapter_counts_as_other() -> None:
    """No adapter is one of them: the base model alone."""
    fleet = SteeredFleet()
    address = fleet.add(9, **BOTH)
    kinds: tuple[Adapters, ...] = ("bard", "pirate", frozenset({0}), None)
    assert not any(is_mixed(fleet, address, one) for one in kinds)
    bard = fleet.pick(adapter="bard")
    fleet.pick(adapter="bard")
    assert [is_mixed(fleet, address, one) for one in kinds] == [False, True, True, True]
    plain = fleet.pick()
    assert all(is_mixed(fleet, address, one) for one in kinds), "two kinds run there"
    fleet.finish(bard)
    assert is_mixed(fleet, address, None)
    fleet.finish(plain)
    assert [is_mixed(fleet, address, one) for one in kinds] == [False, True, True, True]


def test_it_counts_where_the_request_really_runs() -> None:
    fleet = SteeredFleet()
    first, second = fleet.add(1, **BOTH), fleet.add(1, **BOTH)
    lease = fleet.pick(adapter="bard", allowed=frozenset({first}))
    fleet.dispatcher.served_by(lease, second, fleet.now)
    assert not is_mixed(fleet, first, None) and is_mixed(fleet, second, None)
    fleet.finish(lease)
    assert not is_mixed(fleet, second, None)
    assert len(fleet.dispatcher.state.in_flight) == 0
