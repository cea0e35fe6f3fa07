"""Claims about servers with several models: extproc/core/slots/model_pools.py, model_loading.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.selection.endpoint_picker import ENOUGH_SAMPLES, LOAD_PATIENCE_S
from extproc.core.slots.lease import LeaseEnd
from extproc.runners.ollama.probe import models_of
from tests.fakes.foreign_server import running, tag
from tests.fakes.steered_fleet import SteeredFleet


def models(*loaded: str, loading: str = "", slots: int = 2, busy: int = 0) -> dict[str, object]:
    """What a router with the models a and b reports."""
    readings = tuple(
        ModelReading(name=name, slots=slots, busy_slots=busy)
        if name in loaded
        else ModelReading(name=name, is_loaded=False, is_loading=name == loading)
        for name in ("a", "b")
    )
    if not loaded:
        return {
            "models": readings,
            "status": ScrapeStatus.LOADING if loading else ScrapeStatus.ASLEEP,
        }
    many = len(loaded)
    return {"models": readings, "slots": slots * many, "busy_slots": busy * many}


def add_router(fleet: SteeredFleet, *loaded: str) -> Address:
    address = fleet.add(1)
    scrape(fleet, address, *loaded)
    return address


def scrape(fleet: SteeredFleet, address: Address, *loaded: str, **reported: object) -> None:
    fleet.now += 1.0
    fleet.scrape(address, **models(*loaded, **reported))  # type: ignore[arg-type]


def test_a_router_that_loads_its_first_model_keeps_the_load() -> None:
    """It responds with 503 meanwhile, like one that is starting; no other one loads the model."""
    fleet = SteeredFleet()
    routers = [add_router(fleet) for _ in range(3)]
    loading = fleet.pick(model="a").address
    waiting = fleet.queue(model="a")
    scrape(fleet, loading, loading="a")
    assert fleet.is_waiting(waiting)
    assert fleet.pick(model="b").address in set(routers) - {loading}
    scrape(fleet, loading, "a", busy=1)
    assert fleet.served(waiting).address == loading


def test_a_foreign_load_is_waited_for_too() -> None:
    fleet = SteeredFleet()
    first, second = add_router(fleet, "b"), add_router(fleet, "b")
    scrape(fleet, first, "b", loading="a")
    waiting = fleet.queue(model="a")
    scrape(fleet, second, "b")
    assert fleet.is_waiting(waiting)
    scrape(fleet, first, "a", "b")
    assert fleet.served(waiting).address == first


def test_a_failed_load_is_tried_again() -> None:
    """Its request got an error, and a later scrape shows nothing of the load."""
    fleet = SteeredFleet()
    first = add_router(fleet, "b")
    lease = fleet.pick(model="a")
    waiting = fleet.queue(model="a")
    scrape(fleet, first, "b")
    assert fleet.is_waiting(waiting), "it may not have begun"
    fleet.finish(lease)
    assert fleet.is_waiting(waiting)
    scrape(fleet, first, "b")
    assert fleet.served(waiting).address == first


def test_no_cache_is_worth_loading_a_model_for() -> None:
    """Nor is a faster server."""
    fleet = SteeredFleet()
    quick, slow = add_router(fleet, "a"), add_router(fleet, "a")
    chain = tuple(range(40))
    for _ in range(8):
        for address in (quick, slow):
            only = frozenset({address})
            lease = fleet.pick(model="a", prompt_blocks=chain, prompt_tokens=2600, allowed=only)
            took_s = 0.1 if lease.address == quick else 20.0
            fleet.dispatcher.responded(lease, fleet.now + took_s)
            fleet.now += took_s
            fleet.finish(lease)
    lease = fleet.pick(model="a", prompt_blocks=chain, prompt_tokens=2600)
    assert lease.address == quick
    fleet.finish(lease)
    scrape(fleet, quick, "b")
    scrape(fleet, slow, "a")
    for _ in range(2):
        assert fleet.pick(model="a", prompt_blocks=chain, prompt_tokens=2600).address == slow


def test_no_model_is_loaded_again_while_a_slot_of_it_may_be_free_at_once() -> None:
    """Its client asks again as soon as it has the answer, or leaves and asks again."""
    fleet = SteeredFleet()
    home, other = add_router(fleet, "a"), add_router(fleet, "b")
    leases = [fleet.pick(model="a") for _ in range(2)]
    again = fleet.queue(model="a")
    fleet.now += LOAD_PATIENCE_S / 2
    fleet.finish(leases.pop())
    assert fleet.served(again).address == home
    behind = [fleet.queue(model="a") for _ in range(2)]
    fleet.now += LOAD_PATIENCE_S
    fleet.dispatcher.advance(fleet.now)
    assert fleet.served(behind[0]).address == other, "it was patient for long enough"
    assert fleet.is_waiting(behind[1]), "until that load is over"
    scrape(fleet, other, "a", "b", busy=1)
    assert fleet.served(behind[1]).address == other


def test_a_free_slot_that_a_request_cannot_use_is_not_waited_for() -> None:
    """It needs two there, and one where the model is loaded for it."""
    fleet = SteeredFleet()
    home, other = add_router(fleet, "a"), add_router(fleet, "b")
    assert fleet.pick(model="a").address == home
    assert fleet.pick(model="a", weight_slots=2).address == other


def test_foreign_slots_of_a_model_disappear_with_it() -> None:
    """It was unloaded while they used it: a request of ours may have it loaded again."""
    fleet = SteeredFleet()
    address = add_router(fleet, "a", "b")
    scrape(fleet, address, "a", "b", busy=2)
    waiting = fleet.queue(model="a")
    scrape(fleet, address, "b", busy=2)
    assert fleet.served(waiting).address == address


def test_a_request_that_loads_a_model_takes_the_slots_it_asked_for() -> None:
    fleet = SteeredFleet()
    address = add_router(fleet, "b")
    lease = fleet.pick(model="a", weight_slots=3)
    scrape(fleet, address, "a", "b", slots=4, busy=0)
    assert lease.weight_slots == 3
    fleet.pick(model="a")
    fleet.queue(model="a")


def test_a_request_without_a_model_prefers_servers_that_need_none() -> None:
    fleet = SteeredFleet()
    add_router(fleet, "a", "b")
    plain = fleet.add(1, models=["c"])
    assert fleet.pick().address == plain
    assert fleet.pick().address != plain


def test_a_request_for_a_missing_model_gets_it_when_it_appears() -> None:
    """It might have gone anywhere; once an endpoint serves the model, it goes only there."""
    fleet = SteeredFleet()
    other = fleet.add(1, models=["b"])
    lease = fleet.pick(model="b")
    waiting = fleet.queue(model="a")
    serving = fleet.add(1, models=["a"], status=ScrapeStatus.LOADING)
    fleet.finish(lease)
    assert fleet.is_waiting(waiting), f"{other} does not serve it"
    fleet.now += 1.0
    fleet.scrape(serving, models=["a"], slots=1, busy_slots=0)
    assert fleet.served(waiting).address == serving


def test_no_slots_are_reserved_for_a_ticket_that_cannot_use_them() -> None:
    """The server was restarted with another model while it had a reservation for a multi-slot
    request."""
    fleet = SteeredFleet()
    address, other = fleet.add(2, models=["a"]), fleet.add(2, models=["a"])
    leases = [fleet.pick(model="a") for _ in range(4)]
    multi_slot = fleet.queue(model="a", weight_slots=2)
    first = next(lease for lease in leases if lease.address == address)
    fleet.finish(first)
    assert multi_slot.reserved_at == address
    fleet.now += 1.0
    fleet.scrape(address, models=["b"], slots=2, busy_slots=0)
    fleet.pick(model="b")
    for lease in leases:
        if lease.address == other:
            fleet.finish(lease)
    assert fleet.served(multi_slot).address == other


def test_a_name_that_cannot_be_rewritten_goes_where_it_does_no_harm() -> None:
    """A split's name in a body that is too long to be rewritten: plain servers do not read it, and
    a router may have it as an alias; other routers are filtered, for any weights of the split."""
    fleet = SteeredFleet(splits={"chat": {"a": 99.0, "b": 1.0}})
    add_router(fleet, "a", "b")
    assert fleet.rejection(model="chat", is_verbatim=True) == "bad-request"
    fleet.pick(model="chat")
    plain = fleet.add(20, models=["b"])
    for _ in range(20):
        assert fleet.pick(model="chat", is_verbatim=True).address == plain
    waiting = fleet.queue(model="chat", is_verbatim=True)
    aliased = fleet.add(1)
    reported = models("a")
    reported["models"] = (ModelReading(name="a", aliases=("chat",), slots=2, busy_slots=0),)
    fleet.now += 1.0
    fleet.scrape(aliased, **reported)
    assert fleet.is_waiting(waiting), "b was drawn for it"
    assert fleet.pick(model="chat", is_verbatim=True).address == aliased


def test_a_name_that_cannot_be_rewritten_waits_while_no_server_has_its_models() -> None:
    fleet = SteeredFleet(splits={"chat": {"a": 1.0}}, match=ModelMatch.STRICT)
    waiting = fleet.queue(model="chat", is_verbatim=True)
    fleet.add(1, models=["b"])
    assert fleet.is_waiting(waiting)
    plain = fleet.add(1, models=["a"])
    assert fleet.served(waiting).address == plain


def ollama(fleet: SteeredFleet, address: Address, *loaded: str, parallel: int = 2) -> None:
    """An Ollama with three models and this OLLAMA_NUM_PARALLEL, which shows nothing of what
    runs."""
    tags = [tag(f"{name}:latest") for name in ("a", "b", "c")]
    found = models_of(tags, [running(f"{name}:latest") for name in loaded], parallel)
    fleet.now += 1.0
    slots = sum(model.slots or 0 for model in found) or parallel
    fleet.scrape(address, slots=slots, models=found, shared_tokens=0, runner="ollama")


def test_each_loaded_model_of_an_ollama_has_slots_of_its_own() -> None:
    """Two of ours at most for each; the third model takes one request, which loads it, and the
    rest waits for that. Names count with and without their tag."""
    fleet = SteeredFleet()
    address = fleet.add(1)
    ollama(fleet, address, "a", "b")
    leases = [fleet.pick(model=name) for name in ("a", "a:latest", "b", "b")]
    waiting = {name: fleet.queue(model=name) for name in ("a", "b")}
    loading = fleet.pick(model="c")
    for_c = [fleet.queue(model="c"), fleet.queue(model="c:latest")]
    ollama(fleet, address, "a", "b", "c")
    assert [fleet.is_waiting(one) for one in for_c] == [False, True], "it has two slots by now"
    fleet.finish(loading)
    assert not fleet.is_waiting(for_c[1])
    fleet.finish(leases[2])
    assert (fleet.is_waiting(waiting["a"]), fleet.is_waiting(waiting["b"])) == (True, False)
    fleet.finish(leases[1])
    assert not fleet.is_waiting(waiting["a"])
    assert fleet.dispatcher.faults(fleet.now) == []


def test_a_client_that_left_an_ollama_costs_no_slot_of_its_model() -> None:
    """It shows no busy slots, but that a model which is not loaded has none: nothing proves the
    slot free, so the time does, and nothing is foreign."""
    fleet = SteeredFleet()
    address = fleet.join()
    ollama(fleet, address)
    first = fleet.pick(model="a")
    ollama(fleet, address, "a")
    for lease in (first, fleet.pick(model="a")):
        fleet.dispatcher.release(lease, LeaseEnd.ABANDONED, fleet.now)
    waiting = fleet.queue(model="a")
    fleet.now += 0.3
    ollama(fleet, address, "a")
    assert waiting.is_waiting
    fleet.pass_time(2.0)
    assert fleet.served(waiting).address == address
    assert fleet.dispatcher.ledger.endpoint_slots(address).foreign_slots == 0
    assert fleet.pick(model="a").address == address


def two_ollamas(fleet: SteeredFleet, *, load_s: float, answer_s: float) -> list[Address]:
    """Each serves one request at once, the first one of `a` and the other one of `b`. How long
    loads and answers take is known."""
    for address in (fleet.join(), fleet.join()):
        ollama(fleet, address)
    homes = []
    for name in ("a", "b"):
        for number in range(40):
            lease = fleet.pick(model=name)
            fleet.now += answer_s if number else load_s
            fleet.dispatcher.responded(lease, fleet.now)
            fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
            if not number:
                ollama(fleet, lease.address, name, parallel=1)
                homes.append(lease.address)
    return homes


def test_models_of_two_ollamas_stay_where_they_are_while_a_wait_is_shorter_than_a_load() -> None:
    """A model goes to the Ollama that has none, and requests for it wait there. When there are
    as many that a load is expected to be quicker, one of them loads it at the other Ollama."""
    fleet = SteeredFleet()
    home, other = two_ollamas(fleet, load_s=20.0, answer_s=5.0)
    assert home != other
    lease = fleet.pick(model="a")
    waiting = [fleet.queue(model="a") for _ in range(3)]
    fleet.pass_time(5.0)
    assert all(fleet.is_waiting(one) for one in waiting)
    one_more = fleet.queue(model="a")
    fleet.pass_time(2 * LOAD_PATIENCE_S)
    assert fleet.served(one_more).address == other
    for ticket in waiting:
        fleet.finish(lease)
        lease = fleet.served(ticket)
        assert lease.address == home
    assert fleet.dispatcher.faults(fleet.now) == []


def test_a_wait_that_takes_as_long_as_a_load_is_given_up() -> None:
    """The answer there is longer than others were."""
    fleet = SteeredFleet()
    home, other = two_ollamas(fleet, load_s=20.0, answer_s=5.0)
    assert fleet.pick(model="a").address == home
    waiting = fleet.queue(model="a")
    fleet.pass_time(19.0)
    assert fleet.is_waiting(waiting)
    fleet.pass_time(1.5)
    assert fleet.served(waiting).address == other


def test_who_takes_over_knows_how_long_loads_take() -> None:
    """It saw none, and makes no model change its server for a wait that is shorter."""
    before = SteeredFleet()
    homes = two_ollamas(before, load_s=20.0, answer_s=5.0)
    fleet = SteeredFleet()
    addresses = [fleet.join(), fleet.join()]
    assert sorted(addresses) == sorted(homes)
    for home, name in zip(homes, ("a", "b"), strict=True):
        ollama(fleet, home, name, parallel=1)
    for address in (None, *homes):
        fleet.dispatcher.relearn(address, before.dispatcher.learned(address))
    assert fleet.pick(model="a").address == homes[0]
    waiting = fleet.queue(model="a")
    fleet.pass_time(2 * LOAD_PATIENCE_S)
    assert fleet.is_waiting(waiting)
    assert fleet.dispatcher.faults(fleet.now) == []


def test_a_load_that_is_quicker_than_the_wait_is_not_waited_for() -> None:
    """But for the moment in which a slot may be free at once."""
    fleet = SteeredFleet()
    home, other = two_ollamas(fleet, load_s=1.0, answer_s=5.0)
    assert fleet.pick(model="a").address == home
    waiting = fleet.queue(model="a")
    fleet.pass_time(LOAD_PATIENCE_S / 2)
    assert fleet.is_waiting(waiting)
    fleet.pass_time(LOAD_PATIENCE_S)
    assert fleet.served(waiting).address == other


def test_requests_wait_where_the_wait_is_shortest() -> None:
    """Of two that have the model, both busy."""
    fleet = SteeredFleet()
    home, other = two_ollamas(fleet, load_s=20.0, answer_s=5.0)
    third = fleet.join()
    ollama(fleet, third, "a", parallel=1)
    ollama(fleet, home, "a", parallel=1)
    for _ in range(ENOUGH_SAMPLES):
        lease = fleet.pick(model="a", allowed=frozenset({third}))
        fleet.now += 5.0
        fleet.finish(lease)
    assert {fleet.pick(model="a").address for _ in range(2)} == {home, third}
    waiting = [fleet.queue(model="a").pinned_to for _ in range(4)]
    assert waiting.count(home) == waiting.count(third) == 2, other


def test_other_ollamas_load_nothing_while_one_is_loading_the_model() -> None:
    """It is in the list of loaded ones from the beginning of its load on."""
    fleet = SteeredFleet()
    first, second = fleet.join(), fleet.join()
    for address in (first, second):
        ollama(fleet, address)
    lease = fleet.pick(model="a")
    waiting = fleet.queue(model="a")
    ollama(fleet, lease.address, "a", parallel=1)
    fleet.pass_time(10.0)
    assert fleet.is_waiting(waiting)
    fleet.dispatcher.responded(lease, fleet.now)
    ollama(fleet, lease.address, "a", parallel=1)
    fleet.pass_time(1.0)
    assert fleet.is_waiting(waiting), "the load took longer than the answer will"
    fleet.finish(lease)
    assert fleet.served(waiting).address == lease.address


def test_a_load_is_what_its_request_took_longer_than_others() -> None:
    """The headers of a stream come with the first token, those of another response at its end."""
    for is_stream, own_s in ((True, 0.1), (False, 6.3)):
        fleet = SteeredFleet()
        address = fleet.join()
        ollama(fleet, address)
        lease = fleet.pick(model="a", prompt_tokens=10)
        fleet.now += 20.0 + own_s
        fleet.dispatcher.responded(lease, fleet.now, is_stream=is_stream)
        assert fleet.dispatcher.state.model_loads.usual_s("a:latest") == pytest.approx(
            20.0, abs=0.5
        )


def test_a_model_is_loaded_where_least_has_to_make_way() -> None:
    """Where fewest others are loaded, and of those where fewest requests run."""
    fleet = SteeredFleet()
    full, busy, idle = (fleet.join() for _ in range(3))
    ollama(fleet, full, "a", "b")
    ollama(fleet, busy, "b")
    ollama(fleet, idle, "b")
    running_at = [fleet.pick(model="b").address for _ in range(6)]
    assert running_at.count(full) == running_at.count(busy) == 2
    leases = [lease for lease in fleet.dispatcher.ledger.leases() if lease.address == idle]
    for lease in leases:
        fleet.finish(lease)
    for _ in range(8):
        loading = fleet.pick(model="c")
        assert loading.address == idle
        fleet.finish(loading)
        ollama(fleet, idle, "b")
