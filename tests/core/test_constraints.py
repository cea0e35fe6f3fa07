"""Claims about extproc/core/constraints.py."""

from __future__ import annotations

from extproc.core.address import Address
from extproc.core.constraints import UNCONSTRAINED, UNRESOLVED, Constraints, constraints_for
from tests.fakes.steered_fleet import SteeredFleet


def test_waiting_for_one_model_never_blocks_another() -> None:
    """A thousand requests for a busy model do not delay a request for another."""
    fleet = SteeredFleet(queue_max_requests=2000)
    fleet.add(1, models=["a"])
    other = fleet.add(1, models=["b"])
    fleet.pick(model="a")
    waiting = [fleet.queue(model="a") for _ in range(1000)]
    lease = fleet.pick(model="b")
    assert lease.address == other
    next_one = fleet.queue(model="b")
    fleet.finish(lease)
    assert fleet.served(next_one).address == other
    assert all(fleet.is_waiting(ticket) for ticket in waiting)


def test_a_request_never_leaves_its_subset() -> None:
    """A request with a subset hint waits for those endpoints; without one in the fleet it is
    rejected."""
    fleet = SteeredFleet()
    one, two = fleet.add(1), fleet.add(1)
    lease = fleet.pick(allowed=frozenset({one}))
    assert lease.address == one
    waiting = fleet.queue(allowed=frozenset({one}))
    assert fleet.pick(allowed=frozenset({one, two})).address == two
    fleet.finish(lease)
    assert fleet.served(waiting).address == one
    stranger = one._replace(port=1)
    assert fleet.rejection(allowed=frozenset({stranger})) == "no-endpoint"


HERE, THERE = Address("10.0.0.1", 8000), Address("10.0.0.1", 8001)


def test_a_queue_is_found_by_its_addresses_or_its_model() -> None:
    """An endpoint looks for its own address, for its models, and for queues that any may serve."""
    assert list(UNCONSTRAINED.index_keys()) == [None]
    assert list(Constraints(model="a").index_keys()) == ["a"]
    subset = Constraints(model="a", allowed=frozenset({HERE, THERE}))
    assert set(subset.index_keys()) == {HERE, THERE}


def test_no_endpoint_finds_a_queue_of_unresolved_names() -> None:
    assert list(UNRESOLVED.index_keys()) == []


def test_equal_constraints_are_one_object() -> None:
    """A thousand queued requests for one model share them."""
    name = "".join(["mod", "el"])
    one = constraints_for("model", "a", None, frozenset({1, 2}))
    assert constraints_for(name, "a", None, frozenset({2, 1})) is one
    assert constraints_for(name, "b", None, frozenset({2, 1})) != one
