"""Claims about extproc/core/views/waits.py: why requests are queued, by model."""

from __future__ import annotations

from collections import Counter

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Intent
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.queue.ticket import Ticket
from extproc.core.views.snapshot import take_queue_snapshot
from extproc.core.views.waits import ModelQueue, WaitReason
from tests.fakes.steered_fleet import SteeredFleet

REPORTS_CONTEXT = 65_536


def by_model(fleet: SteeredFleet) -> dict[str, ModelQueue]:
    return fleet.dispatcher.view.waits().by_model()


def reason_of(fleet: SteeredFleet, ticket: Ticket) -> WaitReason:
    """Why a ticket waits, which the sums by model say too."""
    queues = by_model(fleet)
    reasons = [fleet.dispatcher.view.waits().reason_of(one) for one in fleet.dispatcher.queue]
    total: Counter[WaitReason] = Counter()
    for queue in queues.values():
        total += queue.by_reason
    assert total == Counter(reasons)
    return fleet.dispatcher.view.waits().reason_of(ticket)


def note(fleet: SteeredFleet) -> str:
    return take_queue_snapshot(fleet.dispatcher.view, fleet.now).idle_note


def two_models() -> tuple[SteeredFleet, Address, Address]:
    fleet = SteeredFleet()
    return fleet, fleet.add(1, models=["big"]), fleet.add(2, models=["small"])


def test_a_model_without_an_idle_slot() -> None:
    """Its depth and the idle slots of the other are told apart."""
    fleet, _, _ = two_models()
    fleet.pick(model="big")
    tickets = [fleet.queue(model="big") for _ in range(3)]
    queues = by_model(fleet)
    assert set(queues) == {"big", "small"}
    assert (queues["big"].queued, queues["big"].idle_slots) == (3, 0)
    assert (queues["small"].queued, queues["small"].idle_slots) == (0, 2)
    assert reason_of(fleet, tickets[0]) is WaitReason.NO_IDLE_SLOT
    assert note(fleet) == (
        "2 idle slots; 3 queued for big: no endpoint that can serve them has an idle slot"
    )


def test_nothing_to_explain() -> None:
    """Without a queue, and without idle slots."""
    fleet, _, _ = two_models()
    assert note(fleet) == ""
    fleet.pick(model="big")
    fleet.queue(model="big")
    for _ in range(2):
        fleet.pick(model="small")
    assert note(fleet) == ""
    fleet.queue()
    assert by_model(fleet)[""].by_reason == {WaitReason.NO_IDLE_SLOT: 1}


def test_reserved_slots() -> None:
    """The slots are idle: for the request that needs both, and for nobody else."""
    fleet = SteeredFleet()
    fleet.add(2, models=["big"])
    leases = [fleet.pick(model="big") for _ in range(2)]
    multi_slot, light = fleet.queue(model="big", weight_slots=2), fleet.queue(model="big")
    fleet.finish(leases[0])
    assert reason_of(fleet, multi_slot) is WaitReason.TOO_FEW_SLOTS
    assert reason_of(fleet, light) is WaitReason.RESERVED
    assert by_model(fleet)["big"].idle_slots == 1
    assert note(fleet) == (
        "1 idle slot; 1 queued for big: they need more slots at once than an endpoint has idle; "
        "1 queued for big: the idle slots are reserved for a request that needs more"
    )


def test_affinity() -> None:
    """Also for a multi-slot request that has a reservation at its target: it lacks slots there."""
    fleet = SteeredFleet()
    target, _ = (fleet.add(2, context_tokens=REPORTS_CONTEXT) for _ in range(2))
    asked = {"prompt_blocks": tuple(range(400)), "prompt_tokens": 26_000}
    lease = fleet.pick(**asked, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now + 13.0)
    fleet.pick(allowed=frozenset({target}))
    multi_slot = fleet.queue(**asked, weight_slots=2)
    assert reason_of(fleet, multi_slot) is WaitReason.AFFINITY
    assert note(fleet).startswith("2 idle slots; 1 queued: they wait briefly for the endpoint")
    fleet.finish(lease)
    assert multi_slot.reservation is not None
    assert reason_of(fleet, multi_slot) is WaitReason.TOO_FEW_SLOTS


def test_no_endpoint_gets_requests() -> None:
    """It is drained, is down, or there is none: another server is needed, or its return."""
    fleet, big, _ = two_models()
    fleet.dispatcher.set_intent(big, Intent.DRAINING, fleet.now)
    ticket = fleet.queue(model="big")
    assert reason_of(fleet, ticket) is WaitReason.NO_ENDPOINT
    assert by_model(fleet)["big"].idle_slots == 0
    fleet.dispatcher.set_intent(big, Intent.ACTIVE, fleet.now)
    assert not fleet.is_waiting(ticket)
    empty = SteeredFleet()
    assert reason_of(empty, empty.queue(model="big:adapter")) is WaitReason.NO_ENDPOINT


def test_a_subset_that_gets_no_requests() -> None:
    """The gateway allows one endpoint, which is down."""
    fleet, big, small = two_models()
    fleet.pick(allowed=frozenset({big}))
    ticket = fleet.queue(allowed=frozenset({big}))
    assert reason_of(fleet, ticket) is WaitReason.NO_IDLE_SLOT
    fleet.scrape(big, status=ScrapeStatus.UNREACHABLE)
    assert reason_of(fleet, ticket) is WaitReason.NO_ENDPOINT
    for _ in range(2):
        fleet.pick(allowed=frozenset({small}))
    ticket = fleet.queue(allowed=frozenset({small}))
    assert reason_of(fleet, ticket) is WaitReason.NO_IDLE_SLOT


def test_names_that_no_server_has_reported() -> None:
    fleet = SteeredFleet()
    fleet.add(1, models=["big"])
    fleet.join()
    ticket = fleet.queue(adapter="unknown")
    assert reason_of(fleet, ticket) is WaitReason.UNREPORTED


def test_a_model_that_is_being_loaded() -> None:
    """One router loads it, and the other one must not."""
    fleet = SteeredFleet()
    unloaded = (ModelReading(name="a", is_loaded=False), ModelReading(name="b", slots=2))
    for _ in range(2):
        fleet.add(2, models=unloaded)
    assert by_model(fleet)["a"].idle_slots == 2, "each has one, which loads it"
    fleet.pick(model="a")
    ticket = fleet.queue(model="a")
    assert by_model(fleet)["a"].idle_slots == 0
    assert reason_of(fleet, ticket) is WaitReason.MODEL_LOADING
    assert "their model is being loaded" in note(fleet)


def test_aliases_are_one_model() -> None:
    """Two servers name the same model differently."""
    fleet = SteeredFleet()
    fleet.add(1, models=[ModelReading(name="big", aliases=("large",))])
    fleet.add(1, models=[ModelReading(name="large", aliases=("big",))])
    for _ in range(2):
        fleet.pick(model="big")
    fleet.queue(model="large")
    (queue,) = by_model(fleet).values()
    assert (queue.queued, queue.idle_slots) == (1, 0)


def test_notes_for_several_models() -> None:
    """Their number, so that a note stays short."""
    fleet = SteeredFleet()
    for model in ("a", "b", "c"):
        fleet.add(1, models=[model])
    for model in ("a", "b"):
        fleet.pick(model=model)
        fleet.queue(model=model)
    assert note(fleet).startswith("1 idle slot; 2 queued for 2 models: ")


def test_a_model_whose_slots_are_full_beside_an_idle_one() -> None:
    """At one router: the idle slots are those of the other model. All of one model wait alike."""
    fleet = SteeredFleet()
    models = [ModelReading(name=name, slots=1, busy_slots=0) for name in ("big", "small")]
    fleet.add(2, models=models)
    fleet.pick(model="big")
    tickets = [fleet.queue(model="big") for _ in range(3)]
    waits = fleet.dispatcher.view.waits()
    assert {waits.reason_of(ticket) for ticket in tickets} == {WaitReason.NO_IDLE_SLOT}
    assert by_model(fleet)["small"].idle_slots == 1
