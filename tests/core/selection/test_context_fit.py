"""Claims about extproc/core/selection/context_fit.py, through the dispatcher."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.decision import Decision, Picked, Queued
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import ModelReading, Observation, ScrapeStatus, SlotReading
from extproc.core.prediction.prompt_sizes import UNKNOWN_LEAST
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Kind, Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.selection.context_fit import ContextFit
from extproc.core.slots.lease import LeaseEnd
from extproc.core.views.explain import explain
from tests.fakes.steered_fleet import SteeredFleet

SMALL, LARGE, OTHER = (Address("10.0.0.1", port) for port in (8001, 8002, 8003))


class Fleet:
    """Endpoints of two slots with these contexts; `models` by address if they differ."""

    def __init__(
        self,
        contexts: dict[Address, int | None],
        mode: ContextFit = ContextFit.REJECT,
        models: dict[Address, str] | None = None,
    ) -> None:
        self.dispatcher = Dispatcher(
            Random(1), DispatcherOptions(health=HealthOptions(stale_after_s=1e9), context_fit=mode)
        )
        specs = [EndpointSpec(address=address) for address in contexts]
        self.dispatcher.set_members("test", specs, 0.0)
        self.models, self.contexts = models or {}, contexts
        for address in contexts:
            self.observe(address, ())

    def observe(self, address: Address, readings: tuple[SlotReading, ...], at: float = 1.0) -> None:
        self.dispatcher.observe(
            Observation(
                address=address,
                began_at=at,
                answered_at=at,
                status=ScrapeStatus.READY,
                slots=2,
                busy_slots=len(readings),
                slot_readings=readings,
                context_tokens=self.contexts[address],
                models=(ModelReading(name=self.models.get(address, "m")),),
            ),
            at,
        )

    def ask(self, tokens: int, **more: object) -> Decision:
        """A prompt of four characters to a token."""
        values: dict[str, object] = {
            "id": "r",
            "timeout_s": 60.0,
            "prompt_tokens": tokens,
            "prompt_chars": 4 * tokens,
            **more,
        }
        return self.dispatcher.submit(Request(**values), 2.0)  # type: ignore[arg-type]

    def goes_to(self, tokens: int, **more: object) -> set[Address]:
        """Where requests go until no slot is free."""
        found = set()
        while isinstance(decision := self.ask(tokens, **more), Picked):
            found.add(decision.lease.address)
            assert set(decision.fallbacks) <= set(self.contexts)
        return found


MIXED: dict[Address, int | None] = {SMALL: 2000, LARGE: 8000}


def test_a_prompt_that_is_too_long_goes_only_where_it_fits() -> None:
    """Also when all slots there are busy and the other endpoint is idle; retries too."""
    fleet = Fleet(MIXED)
    decision = fleet.ask(3000)
    assert isinstance(decision, Picked)
    assert decision.lease.address == LARGE and decision.fallbacks == ()
    assert fleet.goes_to(3000) == {LARGE}
    waiting = fleet.ask(3000)
    assert isinstance(waiting, Queued)
    assert fleet.goes_to(100) == {SMALL}
    seen = explain(fleet.dispatcher.view, Request(id="e", timeout_s=1.0, prompt_tokens=3000))
    reasons = {one.address: " ".join(one.filtered) for one in seen.candidates}
    assert "longer context than its 2000 tokens" in reasons[SMALL]
    assert "longer context" not in reasons[LARGE]
    assert seen.resolved["needed_context_tokens"] == "8000"


def test_what_certainly_fits_nowhere_is_rejected() -> None:
    """What only may be too long goes to the longest context, and the server decides."""
    fleet = Fleet(MIXED)
    certain = int(8000 / UNKNOWN_LEAST) + 100
    rejected = fleet.ask(certain)
    assert isinstance(rejected, Rejected) and rejected.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert fleet.goes_to(certain - 200) == {LARGE}


def test_only_text_that_was_read_rejects() -> None:
    """Not the length of a body: images, tools and what no template shows are in it."""
    fleet = Fleet(MIXED)
    assert isinstance(fleet.ask(10_000_000, prompt_chars=0), Picked)


@pytest.mark.parametrize(
    "more",
    [{"kind": Kind.EMBEDDING}, {"weight_slots": 2}, {"prompt_tokens": None}],
)
def test_several_prompts_and_unknown_ones_are_not_checked(more: dict[str, object]) -> None:
    fleet = Fleet({SMALL: 2000})
    assert isinstance(fleet.ask(10_000_000, **more), Picked)


def test_an_unknown_context_may_hold_anything() -> None:
    fleet = Fleet({SMALL: 2000, LARGE: None})
    assert fleet.goes_to(10_000_000) == {SMALL, LARGE} or fleet.goes_to(1) <= {SMALL, LARGE}
    assert not isinstance(fleet.ask(10_000_000), Rejected)


def test_a_model_that_could_be_loaded_elsewhere_may_hold_anything() -> None:
    fleet = Fleet({SMALL: 2000})
    assert isinstance(fleet.ask(10_000_000), Rejected)
    readings = {"m": ModelReading(name="m", is_loaded=False)}
    fleet.dispatcher.set_loadable("gpu-1", readings, 2.0)
    assert isinstance(fleet.ask(10_000_000), Picked)


def test_the_context_of_a_model_counts_before_it_is_loaded() -> None:
    """What fits no model is rejected at once, also while no server runs; what fits one that is not
    loaded waits for it."""
    readings = {"m": ModelReading(name="m", is_loaded=False, context_tokens=8000)}
    empty = Fleet({})
    empty.dispatcher.set_loadable("gpu-1", readings, 2.0)
    rejected = empty.ask(10_000_000, model="m")
    assert isinstance(rejected, Rejected) and rejected.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert isinstance(empty.ask(3000, model="m"), Queued)
    empty.dispatcher.set_loadable("gpu-1", {}, 2.0)
    fleet = Fleet({SMALL: 2000})
    fleet.dispatcher.set_loadable("gpu-1", readings, 2.0)
    assert isinstance(fleet.ask(1000, model="m"), Picked)
    assert isinstance(fleet.ask(4000, model="m"), Queued)
    assert fleet.dispatcher.view.demands(2.0)["m"].context_tokens == 8000
    assert isinstance(fleet.ask(10_000_000, model="m"), Rejected)


@pytest.mark.parametrize("mode", [ContextFit.ROUTE, ContextFit.OFF])
def test_other_modes_reject_nothing(mode: ContextFit) -> None:
    fleet = Fleet(MIXED, mode)
    expected = {LARGE} if mode is ContextFit.ROUTE else {SMALL, LARGE}
    assert fleet.goes_to(10_000_000) == expected


def test_the_contexts_of_its_own_model_count() -> None:
    """And those that the gateway allows: another endpoint's context helps nobody."""
    fleet = Fleet({**MIXED, OTHER: 4000}, models={SMALL: "a", OTHER: "a", LARGE: "b"})
    assert fleet.goes_to(3000, model="a") == {OTHER}
    assert fleet.goes_to(7000, model="b", allowed=frozenset({LARGE})) == {LARGE}
    alone = Fleet(MIXED)
    assert alone.goes_to(3000, allowed=frozenset({SMALL})) == {SMALL}


def test_a_long_answer_prefers_a_long_context() -> None:
    """And takes the other one when that is busy: most answers are far shorter."""
    fleet = Fleet(MIXED)
    picked = [fleet.ask(1000, max_tokens=4000) for _ in range(4)]
    addresses = [one.lease.address for one in picked if isinstance(one, Picked)]
    assert addresses == [LARGE, LARGE, SMALL, SMALL]


def test_the_ratio_is_learned_from_what_servers_show() -> None:
    """A model with four tokens to an estimated one: 1000 are 4000."""
    fleet = Fleet(MIXED)
    for number in range(30):
        decision = fleet.ask(300)
        assert isinstance(decision, Picked)
        at = 3.0 + number
        reading = SlotReading(
            task_id=number, cached_tokens=200, processed_tokens=1000, decoded_tokens=1
        )
        fleet.observe(decision.lease.address, (reading,), at)
        fleet.dispatcher.responded(decision.lease, at + 0.1, is_stream=False)
        fleet.dispatcher.release(decision.lease, LeaseEnd.SERVED, at + 0.1)
        fleet.observe(decision.lease.address, (), at + 0.2)
    assert fleet.goes_to(1000) == {LARGE}


def test_a_prompt_is_measured_when_its_response_begins() -> None:
    """Until then a slot may show the first batch, or what the previous task has left."""
    fleet = Fleet(MIXED)
    decision = fleet.ask(1500)
    assert isinstance(decision, Picked)
    begun = SlotReading(task_id=1, prompt_tokens=130, cached_tokens=0, processed_tokens=0)
    fleet.observe(decision.lease.address, (begun,), 3.0)
    assert isinstance(fleet.ask(40_000), Rejected)
    whole = replace(begun, prompt_tokens=1501, processed_tokens=1500, decoded_tokens=1)
    fleet.observe(decision.lease.address, (whole,), 4.0)
    assert isinstance(fleet.ask(17_000), Rejected)


LONG_PROMPT = {"model": "m", "prompt_tokens": 3000, "prompt_chars": 12_000}


@pytest.mark.parametrize("tokens", [3000, 40_000])
@pytest.mark.parametrize("how", ["leaves", "restarts shorter", "serves another model"])
def test_the_last_long_context_is_waited_for_only_while_it_is_there(how: str, tokens: int) -> None:
    """Then a queued prompt gets what a new one gets: another endpoint, or its rejection."""
    fleet = SteeredFleet()
    short = fleet.add(4, context_tokens=2000, shared_tokens=0, models=("m",))
    long = fleet.add(1, context_tokens=20_000, models=("m",), instance="first")
    fleet.pick(**LONG_PROMPT)
    ask = LONG_PROMPT | {"prompt_tokens": tokens, "prompt_chars": 4 * tokens}
    ticket = fleet.queue(**ask)
    assert ticket.constraints.context_tokens == 20_000
    fleet.now += 1.0
    if how == "leaves":
        fleet.dispatcher.set_members("test", [EndpointSpec(address=short)], fleet.now)
    elif how == "restarts shorter":
        restarted = {"context_tokens": 1000, "models": ("m",), "instance": "second"}
        fleet.scrape(long, slots=1, busy_slots=1, **restarted)
    else:
        fleet.scrape(long, slots=1, busy_slots=1, context_tokens=20_000, models=("other",))
    settlement = fleet.listener.settlements[ticket.id]
    if tokens == 3000:
        assert isinstance(settlement, Picked) and settlement.lease.address == short
    else:
        assert isinstance(settlement, Rejected)
        assert settlement.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert type(fleet.submit(**ask)) is type(settlement)
    assert not fleet.dispatcher.faults(fleet.now)


@pytest.mark.parametrize("becomes", ["long", "short", "down"])
def test_a_server_that_has_not_reported_yet_may_have_the_context(becomes: str) -> None:
    """The last one with it is replaced by another: what that reports decides."""
    fleet = SteeredFleet()
    short = fleet.add(4, context_tokens=2000, models=("m",))
    fleet.add(1, context_tokens=20_000, models=("m",))
    fleet.pick(**LONG_PROMPT)
    ticket = fleet.queue(**LONG_PROMPT)
    fleet.now += 1.0
    new = Address("10.0.0.2", 8000)
    specs = [EndpointSpec(address=short), EndpointSpec(address=new)]
    fleet.dispatcher.set_members("test", specs, fleet.now)
    assert fleet.is_waiting(ticket)
    if becomes == "down":
        for _ in range(10):
            fleet.now += 1.0
            fleet.scrape(new, status=ScrapeStatus.UNREACHABLE)
    else:
        tokens = 20_000 if becomes == "long" else 2000
        fleet.scrape(new, slots=1, busy_slots=0, context_tokens=tokens, models=("m",))
    expected = new if becomes == "long" else short
    if becomes == "short":
        assert fleet.served(ticket).address in (short, new)
    else:
        assert fleet.served(ticket).address == expected
    assert not fleet.dispatcher.faults(fleet.now)


def test_a_prompt_is_fitted_again_when_its_model_leaves_with_the_last_request() -> None:
    """Unknown models may go anywhere, and nobody has the context that it was queued for."""
    fleet = SteeredFleet()
    fleet.add(1, context_tokens=2000, models=("m",))
    fleet.add(1, context_tokens=20_000, models=("m",))
    other = fleet.add(1, context_tokens=8000, models=("x",))
    leases = [fleet.pick(model="m"), fleet.pick(**LONG_PROMPT)]
    ticket = fleet.queue(**LONG_PROMPT)
    fleet.dispatcher.set_members("test", [EndpointSpec(address=other)], fleet.now)
    assert fleet.is_waiting(ticket)
    for lease in leases:
        fleet.finish(lease)
    assert fleet.served(ticket).address == other
    assert not fleet.dispatcher.faults(fleet.now)


def test_a_context_that_another_endpoint_or_machine_has_is_waited_for() -> None:
    """Also if that one has no slot, or would have to load the model."""
    fleet = SteeredFleet()
    short = fleet.add(4, context_tokens=2000, models=("m",))
    fleet.add(1, context_tokens=20_000, models=("m",))
    fleet.pick(**LONG_PROMPT)
    ticket = fleet.queue(**LONG_PROMPT)
    readings = {"m": ModelReading(name="m", is_loaded=False, context_tokens=20_000)}
    fleet.dispatcher.set_loadable("gpu-1", readings, fleet.now)
    fleet.dispatcher.set_members("test", [EndpointSpec(address=short)], fleet.now)
    assert fleet.is_waiting(ticket) and ticket.constraints.context_tokens == 20_000
    fleet.dispatcher.set_loadable("gpu-1", {}, fleet.now)
    assert fleet.served(ticket).address == short


def test_a_name_that_is_not_known_yet_needs_no_context_yet() -> None:
    """It is checked when the servers that may have it have reported."""
    fleet = SteeredFleet()
    fleet.add(4, context_tokens=2000, models=("m",))
    late = fleet.join()
    ticket = fleet.queue(**LONG_PROMPT | {"model": "m:poet"})
    assert ticket.constraints.context_tokens == 0
    fleet.scrape(
        late, slots=1, busy_slots=0, context_tokens=20_000, models=["m"], adapters=["poet"]
    )
    assert fleet.served(ticket).address == late


def test_where_no_context_is_known_nothing_is_required() -> None:
    """Although another model has a short one."""
    fleet = Fleet({SMALL: 2000, LARGE: None}, models={SMALL: "a", LARGE: "b"})
    assert isinstance(fleet.ask(10_000_000, model="b"), Picked)
    assert isinstance(fleet.ask(10_000_000, model="a"), Rejected)


@given(
    contexts=st.lists(st.sampled_from([None, 1000, 2000, 8000]), min_size=1, max_size=4),
    tokens=st.integers(0, 60_000),
)
def test_nothing_that_may_fit_is_rejected_or_kept_from_all(
    contexts: list[int | None], tokens: int
) -> None:
    """And a prompt goes to a context that is too short only if all are."""
    addresses = [Address("10.0.0.1", 9000 + number) for number in range(len(contexts))]
    fleet = Fleet(dict(zip(addresses, contexts, strict=True)))
    decision = fleet.ask(tokens)
    known = [one for one in contexts if one is not None]
    if isinstance(decision, Rejected):
        assert len(known) == len(contexts) and tokens * UNKNOWN_LEAST > max(known)
        return
    assert isinstance(decision, Picked)
    context = fleet.contexts[decision.lease.address]
    if context is not None and context <= tokens:
        assert context == max(known)
