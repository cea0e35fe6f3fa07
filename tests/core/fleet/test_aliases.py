"""Claims about models, aliases, splits and adapters: extproc/core/fleet/, constraints.py."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from extproc.core.fleet.aliases import MAX_REMEMBERED, ModelIndex, ModelMatch
from extproc.core.fleet.endpoint import Intent
from extproc.core.fleet.splits import resolve_model
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.scheduler.decision import Picked
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


def test_an_unknown_model_may_go_anywhere_unless_strict() -> None:
    lenient, strict = SteeredFleet(), SteeredFleet(match=ModelMatch.STRICT)
    for fleet in (lenient, strict):
        fleet.add(1, models=[ModelReading(name="tiny", aliases=("t",))])
    lenient.pick(model="whatever")
    assert strict.rejection(model="whatever") == "model-not-found"
    strict.pick(model="t")


def test_a_strict_fleet_waits_for_a_model_that_is_only_gone() -> None:
    """Its server left; the name is known. Before the first scrape, requests for any name are
    queued."""
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    early = fleet.queue(model="a")
    gone = fleet.add(1, models=["a"])
    lease = fleet.served(early)
    fleet.finish(lease)
    fleet.dispatcher.set_members("test", [], fleet.now)
    assert gone not in fleet.dispatcher.fleet
    fleet.addresses.clear()
    waiting = fleet.queue(model="a")
    fleet.add(1, models=["b"])
    assert fleet.is_waiting(waiting)
    fleet.now += 1
    fleet.add(1, models=["a"])
    assert not fleet.is_waiting(waiting)


def test_a_request_for_a_lost_model_may_go_anywhere_if_lenient() -> None:
    fleet = SteeredFleet()
    first = fleet.add(1, models=["a"])
    second = fleet.add(1, models=["b"])
    lease = fleet.pick(model="a")
    waiting = fleet.queue(model="a")
    fleet.now += 1
    fleet.scrape(first, models=["c"], slots=1, busy_slots=1)
    assert fleet.served(waiting).address == second
    fleet.finish(lease)


def test_a_request_for_a_lost_model_remains_queued_if_strict() -> None:
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    first = fleet.add(1, models=["a"])
    fleet.add(9, models=["b"])
    fleet.pick(model="a")
    waiting = fleet.queue(model="a")
    fleet.now += 1
    fleet.scrape(first, models=["c"], slots=1, busy_slots=1)
    assert fleet.is_waiting(waiting)
    fleet.now += 1
    third = fleet.add(1, models=["a"])
    assert fleet.served(waiting).address == third


def test_a_model_name_precedes_an_alias_of_another() -> None:
    """In any order of the list; of two equal aliases the first applies."""
    models = [
        ModelReading(name="a", aliases=("b", "c"), slots=1),
        ModelReading(name="b", aliases=("c",), slots=4),
    ]
    for readings in (models, models[::-1]):
        fleet = SteeredFleet()
        endpoint = fleet.dispatcher.fleet.get(fleet.add(5, models=readings))
        assert endpoint is not None
        assert endpoint.models_by_name["b"].name == "b"
        assert endpoint.models_by_name["c"] is readings[0]


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


def test_a_hint_without_an_eligible_endpoint_is_rejected() -> None:
    """The allowed endpoint is down, drained, or serves another model: the next hint may name
    others."""
    fleet = SteeredFleet()
    one, two = fleet.add(1, models=["a"], adapters=["bard"]), fleet.add(1, models=["b"])
    hint = frozenset({one})
    fleet.pick(allowed=hint)
    fleet.queue(allowed=hint, model="a", adapter="bard")
    assert fleet.rejection(allowed=hint, model="b") == "no-endpoint"
    assert fleet.rejection(allowed=frozenset({two}), adapter="bard") == "no-endpoint"
    assert fleet.rejection(allowed=hint, model="b", adapter="nobody") == "model-not-found"
    fleet.dispatcher.set_intent(one, Intent.DRAINING, fleet.now)
    assert fleet.rejection(allowed=hint) == "no-endpoint"
    fleet.dispatcher.set_intent(one, Intent.ACTIVE, fleet.now)
    fleet.queue(allowed=hint)
    fleet.dispatcher.connect_failed(one, fleet.now)
    assert fleet.rejection(allowed=hint) == "no-endpoint"
    fleet.queue(model="a")


def test_adapters() -> None:
    """Only servers that have it; the request gets the picked server's number of it."""
    fleet = SteeredFleet()
    fleet.add(4, models=["m"], adapters=["bard"])
    has_it = fleet.add(1, models=["m"], adapters=["bard", "pirate"])
    outcome = fleet.submit(adapter="pirate")
    assert isinstance(outcome, Picked)
    assert (outcome.lease.address, outcome.adapter_id, outcome.fallbacks) == (has_it, 1, ())
    fleet.queue(adapter="pirate")
    assert fleet.rejection(adapter="nobody-has-it") == "model-not-found"


def test_an_adapter_with_an_empty_name_matches_no_request() -> None:
    """A request that names no adapter is sent with none."""
    fleet = SteeredFleet()
    fleet.add(1, adapters=[""])
    outcome = fleet.submit()
    assert isinstance(outcome, Picked) and outcome.adapter_id is None


def test_adapters_by_number() -> None:
    """Only servers that have these numbers; if no server reported any, all are possible."""
    fleet = SteeredFleet()
    bare = fleet.add(1, models=["m"])
    fleet.finish(fleet.pick(adapter_numbers=frozenset({1})))
    fleet.add(4, models=["m"], adapters=["bard"])
    has_it = fleet.add(1, models=["m"], adapters=["bard", "pirate"])
    lease = fleet.pick(adapter_numbers=frozenset({1}))
    assert lease.address == has_it != bare
    waiting = fleet.queue(adapter_numbers=frozenset({0, 1}))
    assert fleet.rejection(adapter_numbers=frozenset({2})) == "model-not-found"
    fleet.finish(lease)
    assert fleet.served(waiting).address == has_it


def test_requests_with_one_adapter_share_an_endpoint() -> None:
    """llama.cpp batches only equal adapters: a second pirate joins the first."""
    fleet = SteeredFleet()
    for _ in range(4):
        fleet.add(4, models=["m"], adapters=["bard", "pirate"])
    bard, pirate = fleet.pick(adapter="bard"), fleet.pick(adapter="pirate")
    assert bard.address != pirate.address
    for _ in range(10):
        lease = fleet.pick(adapter="bard")
        assert lease.address != pirate.address
        fleet.finish(lease)


def router(*loaded: str, busy: int = 0) -> tuple[ModelReading, ...]:
    """Models a and b; the loaded ones have two slots."""
    return tuple(
        ModelReading(name=name, slots=2, busy_slots=busy)
        if name in loaded
        else ModelReading(name=name, is_loaded=False)
        for name in ("a", "b")
    )


def test_a_router_has_slots_by_model() -> None:
    """Free slots of one loaded model do not help a request for the other."""
    fleet = SteeredFleet()
    fleet.add(4, models=router("a", "b"))
    for _ in range(2):
        fleet.pick(model="a")
    waiting = fleet.queue(model="a")
    lease = fleet.pick(model="b")
    fleet.finish(lease)
    assert fleet.is_waiting(waiting)


def test_a_router_that_has_the_model_loaded_is_preferred() -> None:
    fleet = SteeredFleet()
    fleet.add(2, models=router("b"))
    loaded = fleet.add(2, models=router("a"))
    assert [fleet.pick(model="a").address for _ in range(2)] == [loaded, loaded]


def test_one_load_of_a_model_at_a_time() -> None:
    """The others wait until it is loaded; the next one gets a free slot there, and only when there
    are none left may another router load the model."""
    fleet = SteeredFleet()
    routers = [fleet.add(2, models=router("b")) for _ in range(3)]
    loading = fleet.pick(model="a").address
    waiting = [fleet.queue(model="a") for _ in range(3)]
    assert loading in routers
    fleet.now += 5
    fleet.scrape(loading, slots=4, busy_slots=1, models=router("a", "b", busy=0))
    assert [fleet.is_waiting(ticket) for ticket in waiting] == [False, False, True]
    assert fleet.served(waiting[0]).address == loading
    assert fleet.served(waiting[1]).address != loading


def test_a_load_that_fails_is_tried_elsewhere() -> None:
    fleet = SteeredFleet()
    for _ in range(2):
        fleet.add(2, models=router("b"))
    loading = fleet.pick(model="a").address
    waiting = fleet.queue(model="a")
    fleet.scrape(loading, status=ScrapeStatus.UNREACHABLE)
    assert fleet.served(waiting).address != loading


def test_splits_follow_their_weights() -> None:
    random = Random(1)
    splits = {"chat": {"tiny": 90.0, "small": 10.0}, "alias": {"tiny": 1.0}}
    drawn = Counter(resolve_model("chat", splits, random) for _ in range(10_000))
    assert set(drawn) == {"tiny", "small"} and 850 < drawn["small"] < 1150
    assert resolve_model("alias", splits, random) == "tiny"
    assert resolve_model("other", splits, random) == "other"
    assert resolve_model(None, splits, random) is None


def test_remembered_names_are_bounded() -> None:
    index = ModelIndex()
    address = SteeredFleet().add(1)
    for number in range(MAX_REMEMBERED + 10):
        lost = index.report(address, [f"m{number}"])
        assert len(lost) == (number > 0)
    assert not index.was_ever_known("m0") and index.was_ever_known("m11")
    assert index.is_known(f"m{MAX_REMEMBERED + 9}") and not index.is_known("m11")


@pytest.mark.parametrize("models", [(), ("m",)])
def test_a_plain_server_has_no_model_pools(models: tuple[str, ...]) -> None:
    fleet = SteeredFleet()
    address = fleet.add(1, models=models)
    assert fleet.dispatcher.ledger.endpoint_slots(address).model_pools == {}
