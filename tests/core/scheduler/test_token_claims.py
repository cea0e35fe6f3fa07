"""Claims about extproc/core/scheduler/token_claims.py: which pools share a context, and what
scrapes and ends of requests teach about it."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.decision import Queued
from extproc.core.fleet.endpoint import ContextSharing, ContextSource
from extproc.core.objective import Criticality, Objective
from extproc.core.observation import EndedTask, ModelReading, ScrapeStatus, SlotReading
from extproc.core.prediction.answer_lengths import LEAST_OF_MODEL, LengthDistribution
from extproc.core.prediction.latency import BURST_SCRAPES
from extproc.core.prediction.prompt_sizes import TEMPLATE_TOKENS
from extproc.core.request import Kind, Request
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.token_demand import TokenDemand
from extproc.core.slots.token_pool import TokenPool
from extproc.core.views.explain import explain
from extproc.core.views.fleet_capacity import fleet_health
from extproc.core.views.waits import WaitReason
from tests.fakes.steered_fleet import SteeredFleet

CONTEXT = 1024
GOLD = Objective(name="gold", criticality=Criticality.CRITICAL)


def fleet_of(*objectives: Objective) -> SteeredFleet:
    return SteeredFleet(*objectives, context=ContextSharing.SHARED)


def asked(prompt: int, answer: int | None = None, **more: Any) -> dict[str, Any]:
    """A request of that length, whose prompt is all text."""
    return {
        "prompt_tokens": prompt,
        "prompt_chars": 4 * prompt,
        "max_tokens": answer,
        "traits": "/v1",
        **more,
    }


def sized(fleet: SteeredFleet, model: str = "") -> SteeredFleet:
    """Prompts are known to be as long as estimated."""
    request = Request(id="r", timeout_s=1.0, **asked(10_000))
    for _ in range(200):
        fleet.dispatcher.state.prompt_sizes.record_most(model, request, 10_000)
    return fleet


def tokens_of(fleet: SteeredFleet, address: Address, model: str = "") -> TokenPool:
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(address)
    pool = endpoint_slots.pool(model) if model else endpoint_slots
    assert pool.tokens is not None
    return pool.tokens


def reading(task: int, prompt: int, decoded: int, left: int | None = None, **more: Any) -> Any:
    return SlotReading(
        task_id=task,
        prompt_tokens=prompt + decoded,
        cached_tokens=0,
        processed_tokens=prompt,
        decoded_tokens=decoded,
        remaining_tokens=left,
        **more,
    )


def test_a_request_waits_for_tokens_beside_free_slots() -> None:
    """It gets them as soon as enough is free, by the end of another request."""
    fleet = sized(fleet_of())
    fleet.add(4, context_tokens=CONTEXT)
    lease = fleet.pick(**asked(400, 200))
    ticket = fleet.queue(**asked(400, 200))
    small = fleet.queue(**asked(10, 10))
    assert fleet.is_waiting(ticket) and fleet.is_waiting(small)
    fleet.finish(lease)
    assert fleet.served(ticket) and fleet.served(small)


def test_a_scrape_shows_that_there_is_room() -> None:
    """A request near its end makes room for one that outlives it."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    fleet.pick(**asked(400, 300))
    fleet.now += 1
    ticket = fleet.queue(**asked(200, 250))
    fleet.scrape(address, slots=4, busy_slots=1, slot_readings=(reading(0, 400, 290, 10),))
    assert fleet.served(ticket)
    claim = tokens_of(fleet, address).claims[1]
    assert (claim.prompt_tokens, claim.decoded_tokens) == (400, 290)


def test_a_request_for_another_server_does_not_wait() -> None:
    """The server with room is chosen although another has as many free slots, or a cache."""
    fleet = sized(fleet_of())
    first = fleet.add(4, context_tokens=CONTEXT)
    second = fleet.add(4, context_tokens=CONTEXT)
    long = fleet.pick(**asked(600, 300, session_id="s"))
    fleet.dispatcher.responded(long, fleet.now)
    other = second if long.address == first else first
    assert fleet.pick(**asked(300, 300, session_id="s")).address == other
    assert fleet.queue(**asked(300, 600))


@pytest.mark.parametrize("model", [None, "only-here"])
def test_who_waits_for_tokens_is_next_at_other_servers(model: str | None) -> None:
    """A server of one slot has room for each request: its slot goes to who came first, and not to
    the next one because the first has a reservation elsewhere. One that it cannot serve passes."""
    fleet = sized(sized(fleet_of()), "only-here")
    fleet.add(4, context_tokens=CONTEXT, models=("only-here",))
    single = fleet.add(1, context_tokens=CONTEXT, models=("another",))
    leases = [fleet.pick(**asked(500, 400)) for _ in range(2)]
    earlier = fleet.queue(**asked(500, 400, model=model))
    later = fleet.queue(**asked(500, 400))
    fleet.now += 1
    fleet.finish(next(lease for lease in leases if lease.address == single))
    first, second = (earlier, later) if model is None else (later, earlier)
    assert fleet.served(first).address == single
    assert fleet.is_waiting(second)


def test_a_critical_request_uses_what_is_reserved_only_if_it_fits() -> None:
    """The reserved room of a standard request is open to a critical one that fits beside what
    runs, and closed to one that does not, and to others of its own criticality."""
    fleet = sized(fleet_of(GOLD))
    fleet.add(4, context_tokens=CONTEXT)
    fleet.pick(**asked(300, 200))
    waiting = fleet.queue(**asked(500, 300))
    fleet.queue(**asked(10, 10))
    assert fleet.pick(**asked(100, 100, objective="gold"))
    assert fleet.queue(**asked(500, 300, objective="gold"))
    assert fleet.is_waiting(waiting)


def test_a_router_has_a_context_for_each_model() -> None:
    """A full context of one model keeps nobody from another, and one that is not loaded has a
    single slot, which shares nothing."""
    fleet = sized(sized(fleet_of(), "a"), "b")
    models = (
        ModelReading(name="a", slots=4, busy_slots=0),
        ModelReading(name="b", slots=4, busy_slots=0),
        ModelReading(name="c", is_loaded=False),
    )
    address = fleet.add(8, models=models, context_tokens=CONTEXT)
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(address)
    assert endpoint_slots.tokens is None and endpoint_slots.pool("c").tokens is None
    fleet.pick(**asked(500, 400, model="a"))
    assert fleet.queue(**asked(500, 400, model="a"))
    assert fleet.pick(**asked(500, 400, model="b"))
    fleet.now += 1
    fleet.scrape(
        address,
        slots=8,
        busy_slots=2,
        models=(
            ModelReading(name="a", slots=4, busy_slots=2),
            ModelReading(name="b", slots=4, busy_slots=0),
        ),
        slot_readings=(reading(0, 500, 10, model="a"), reading(1, 200, 10, model="a")),
    )
    assert tokens_of(fleet, address, "a").foreign_tokens == 510  # the larger one, to be sure
    assert tokens_of(fleet, address, "b").foreign_tokens == 0
    assert fleet.dispatcher.faults(fleet.now) == []


def test_foreign_requests_count_by_what_they_hold_and_may_still_get() -> None:
    """Of a request with a limit that is all; without one it may go on as long as others do."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    fleet.now += 1
    fleet.scrape(address, slots=4, busy_slots=1, slot_readings=(reading(0, 300, 50, 100),))
    tokens = tokens_of(fleet, address)
    assert (tokens.foreign_tokens, tokens.reserved_tokens) == (350, 450)
    fleet.now += 1
    fleet.scrape(address, slots=4, busy_slots=1, slot_readings=(reading(0, 300, 90),))
    assert (tokens.foreign_tokens, tokens.reserved_tokens) == (390, CONTEXT)
    fleet.now += 1
    fleet.scrape(address, slots=4, busy_slots=0)
    assert tokens.foreign_tokens == 0


def test_prompts_that_began_together_are_told_apart_by_their_length() -> None:
    """Of two requests that are in transit at once one may overtake the other."""
    fleet = fleet_of()
    address = fleet.add(4, context_tokens=10 * CONTEXT)
    short, long = fleet.pick(**asked(50, 100)), fleet.pick(**asked(500, 100))
    fleet.now += 1
    readings = (reading(0, 510, 5), reading(1, 55, 7))
    fleet.scrape(address, slots=4, busy_slots=2, slot_readings=readings)
    tokens = tokens_of(fleet, address)
    claims = [tokens.claims[lease.id] for lease in (short, long)]
    assert [(one.prompt_tokens, one.decoded_tokens) for one in claims] == [(55, 7), (510, 5)]
    prompts = fleet.dispatcher.state.prompt_sizes
    request = Request(id="r", timeout_s=1.0, **asked(100))
    assert prompts.most("", request)[0] == 400 + TEMPLATE_TOKENS  # too uncertain to learn from
    fleet.now += 1
    later = fleet.pick(**asked(100, 100))
    fleet.now += 1
    three = (*readings, reading(2, 164, 4))
    fleet.scrape(address, slots=4, busy_slots=3, slot_readings=three)
    assert tokens.claims[later.id].prompt_tokens == 164
    assert 164 < prompts.most("", request)[0] < 164 * 2


def test_a_prefill_is_not_taken_for_a_shorter_prompt() -> None:
    """Of two requests that began together the short one generates, and the long one has read less
    than the short one has: the long one keeps all that it asked for, until its prefill ends. Then
    the long answer of the short one makes it no longer prompt."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=4 * CONTEXT)
    short = fleet.pick(**asked(300, 900))
    long = fleet.pick(**asked(1200, 200))
    fleet.now += 1
    in_prefill = SlotReading(
        task_id=2, prompt_tokens=256, cached_tokens=0, processed_tokens=256, decoded_tokens=0
    )
    readings = (reading(1, 300, 20), in_prefill)
    fleet.scrape(address, slots=4, busy_slots=2, slot_readings=readings)
    claims = tokens_of(fleet, address).claims
    assert claims[long.id].prompt_tokens >= 1200
    readings = (reading(1, 310, 899), reading(2, 1190, 1))
    fleet.now += 1
    fleet.scrape(address, slots=4, busy_slots=2, slot_readings=readings)
    assert [claims[lease.id].prompt_tokens for lease in (short, long)] == [310, 1190]


def test_a_context_that_turns_out_to_be_shared_has_the_leases_that_run() -> None:
    """They hold what their requests are expected to take; what runs from before a restart of the
    picker, and whose request is not known, may hold anything."""
    fleet = SteeredFleet(context=ContextSharing.PER_SLOT)
    address = fleet.add(4, context_tokens=CONTEXT)
    sized(fleet)
    fleet.pick(**asked(300, 100))
    gone = fleet.pick(**asked(300, 100))
    fleet.dispatcher.release(gone, LeaseEnd.ABANDONED, fleet.now)
    fleet.context = ContextSharing.SHARED
    fleet.join()
    fleet.now += 1
    fleet.scrape(address, slots=4)
    assert tokens_of(fleet, address).held_tokens > CONTEXT
    fleet.pass_time(20)
    tokens = tokens_of(fleet, address)
    assert 300 <= tokens.held_tokens < 400 and fleet.dispatcher.faults(fleet.now) == []
    fleet.dispatcher.rebuild(fleet.now)
    assert 300 <= tokens_of(fleet, address).held_tokens < 400
    fleet.context = ContextSharing.PER_SLOT
    fleet.join()
    fleet.now += 1
    fleet.scrape(address, slots=4)
    assert fleet.dispatcher.ledger.endpoint_slots(address).tokens is None


# Learning


def answered(fleet: SteeredFleet, lease: Lease, seconds: float, **more: Any) -> None:
    fleet.dispatcher.responded(lease, fleet.now, **more)
    fleet.now += seconds
    fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)


def learned(fleet: SteeredFleet) -> LengthDistribution | None:
    return fleet.dispatcher.state.answer_lengths.of_model("")


def paced(fleet: SteeredFleet, address: Address, token_s: float) -> None:
    """Scrapes have shown how fast the server is, by a task that has ended."""
    latency = fleet.dispatcher.state.latency.endpoint(address)
    for number in range(1, 12):
        fleet.now += 100 * token_s
        latency.observe_slots((reading(-1, 1, 100 * number),), 1, fleet.now, fleet.now)
    latency.observe_slots((), 0, fleet.now, fleet.now)


@pytest.mark.parametrize("token_s", [0.001, 0.03])
def test_lengths_are_as_long_as_the_speed_that_was_measured_allows(token_s: float) -> None:
    """Nothing is learned before the server was measured: a quick one was thought to be slow, and
    what was thought of its answers filled its context until all were killed."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    for _ in range(2 * LEAST_OF_MODEL):
        answered(fleet, fleet.pick(**asked(50)), 300 * token_s)
    assert learned(fleet) is None
    paced(fleet, address, token_s)
    for _ in range(2 * LEAST_OF_MODEL):
        answered(fleet, fleet.pick(**asked(50)), 300 * token_s)
    known = learned(fleet)
    assert known is not None
    assert known.survival(200) > 0.8 and known.survival(500) < 0.1


@pytest.mark.parametrize(
    ("context", "looks"), [(ContextSharing.SHARED, 1), (ContextSharing.PER_SLOT, 0)]
)
def test_a_server_whose_speed_is_not_known_is_looked_at_twice(
    context: ContextSharing, looks: int
) -> None:
    """No two usual scrapes see the same short answer. Without its speed no length is learned, and
    requests without a bound would run one after the other for ever."""
    fleet = SteeredFleet(context=context)
    address = fleet.add(4, context_tokens=CONTEXT)
    latency = fleet.dispatcher.state.latency.endpoint(address)
    for task in range(20):
        begun, is_known = len(fleet.listener.unsure), latency.knows_pace
        lease = fleet.pick(**asked(100))
        asks = len(fleet.listener.unsure)
        assert asks == begun + (0 if is_known else looks)
        fleet.now += 1
        for decoded in (8, 16, 16):
            fleet.scrape(
                address, slots=4, busy_slots=1, slot_readings=(reading(task, 100, decoded),)
            )
            if decoded == 8 and not is_known:
                assert len(fleet.listener.unsure) == asks + looks
            fleet.now += 0.1
        fleet.finish(lease)
        assert not is_known or len(fleet.listener.unsure) == begun
        fleet.scrape(address, slots=4, busy_slots=0)
    assert latency.knows_pace


def test_a_request_is_looked_for_until_its_answer_shows_the_speed() -> None:
    """Its first tokens come between two usual scrapes, and so does its end. A server that does not
    tell its tokens is not asked for ever, nor one that nobody uses."""
    fleet = SteeredFleet(context=ContextSharing.SHARED)
    address = fleet.add(4, context_tokens=CONTEXT)
    lease = fleet.pick(**asked(100))
    asks = len(fleet.listener.unsure)
    for _ in range(2 * BURST_SCRAPES):
        fleet.now += 0.02
        fleet.scrape(address, slots=4, busy_slots=1, slot_readings=(reading(1, 100, 0),))
    assert len(fleet.listener.unsure) == asks + BURST_SCRAPES
    fleet.finish(lease)
    lease = fleet.pick(**asked(100))
    asks = len(fleet.listener.unsure)
    fleet.finish(lease)
    fleet.scrape(address, slots=4, busy_slots=0)
    assert len(fleet.listener.unsure) == asks


def test_an_answer_that_its_client_cut_off_would_have_been_longer() -> None:
    """By `max_tokens`: those without may become longer than all that were seen."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    paced(fleet, address, 0.01)
    for _ in range(2 * LEAST_OF_MODEL):
        answered(fleet, fleet.pick(**asked(50, 100)), 0.99)
    known = learned(fleet)
    assert known is not None and known.survival(100) > 0.7


def test_an_answer_that_nobody_waited_for_was_longer_than_it_was_seen() -> None:
    """One that is not streamed has no headers when its client leaves. Without these only short
    answers would count: of all that clients wait for, the long ones are left more often."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    paced(fleet, address, 0.01)
    for task in range(2 * LEAST_OF_MODEL):
        lease = fleet.pick(**asked(50))
        if task % 2:
            answered(fleet, lease, 0.2)
            continue
        fleet.now += 4
        fleet.scrape(address, slots=4, busy_slots=1, slot_readings=(reading(task, 50, 400),))
        fleet.dispatcher.release(lease, LeaseEnd.ABANDONED, fleet.now)
        fleet.pass_time(1)
        fleet.scrape(address, slots=4, busy_slots=0)
        fleet.pass_time(1)
    known = learned(fleet)
    assert known is not None and known.survival(350) > 0.3


def test_lengths_are_learned_from_the_time_of_requests() -> None:
    """After enough of them short answers run side by side; before, each is alone."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    paced(fleet, address, 0.03)
    first = fleet.pick(**asked(50))
    fleet.dispatcher.cancel(fleet.queue(**asked(50)), fleet.now)
    answered(fleet, first, 0.5)
    for _ in range(10 * LEAST_OF_MODEL):
        answered(fleet, fleet.pick(**asked(50)), 0.5)
    leases = [fleet.pick(**asked(50)) for _ in range(4)]
    assert {lease.address for lease in leases} == {address}


def test_a_scrape_says_how_far_an_answer_had_come() -> None:
    """It was seen with 400 tokens a moment ago, whatever its server's speed was before."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    paced(fleet, address, 0.03)
    for task in range(LEAST_OF_MODEL):
        lease = fleet.pick(**asked(50))
        fleet.dispatcher.responded(lease, fleet.now)
        fleet.now += 2
        fleet.scrape(address, slots=4, busy_slots=1, slot_readings=(reading(task, 50, 400),))
        fleet.now += 0.1
        fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
    known = learned(fleet)
    assert known is not None
    assert known.survival(350) > 0.7 and known.survival(600) < 0.1


@pytest.mark.parametrize("paces", [2, 40])
def test_a_speed_of_a_machine_that_stood_still_shortens_no_answer(paces: int) -> None:
    """Two of three samples were taken while the machine did nothing: 300 tokens, of 0.001 s, are
    not taken for 5. Once there are many samples an answer that was seen has the usual speed."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    latency = fleet.dispatcher.state.latency.endpoint(address)
    for number, token_s in enumerate([0.001, 0.1, 0.1, *[0.001] * paces], 1):
        fleet.now += 100 * token_s
        latency.observe_slots((reading(-1, 1, 100 * number),), 1, fleet.now, fleet.now)
    latency.observe_slots((), 0, fleet.now, fleet.now)
    assert latency.knows_pace and latency.is_sure_of_pace == (paces > 30)
    usual_s = latency.measured_token_s(1)
    assert usual_s is not None and usual_s > 0.002
    for task in range(LEAST_OF_MODEL):
        lease = fleet.pick(**asked(50))
        if task % 2:
            fleet.now += 0.1
            fleet.scrape(address, slots=4, busy_slots=1, slot_readings=(reading(task, 50, 100),))
            fleet.now += 0.1
        answered(fleet, lease, 0.2)
    known = learned(fleet)
    assert known is not None and known.survival(120) > 0.7


@pytest.mark.parametrize(
    ("request_", "end", "is_error"),
    [
        (asked(50), LeaseEnd.SERVED, True),
        (asked(50), LeaseEnd.HANDED_OVER, False),
        (asked(50, kind=Kind.EMBEDDING), LeaseEnd.SERVED, False),
        (asked(50, weight_slots=2), LeaseEnd.SERVED, False),
    ],
)
def test_what_shows_no_length_teaches_none(
    request_: dict[str, Any], end: LeaseEnd, is_error: bool
) -> None:
    """Errors, requests whose end was not seen, embeddings, and several answers at once."""
    fleet = sized(fleet_of())
    fleet.add(4, context_tokens=CONTEXT)
    for _ in range(LEAST_OF_MODEL):
        lease = fleet.pick(**request_)
        fleet.dispatcher.responded(lease, fleet.now, is_error=is_error)
        fleet.pass_time(20)
        fleet.dispatcher.release(lease, end, fleet.now)
        fleet.pass_time(20)
    assert learned(fleet) is None


def test_a_prompt_before_any_was_seen() -> None:
    """It may have a token for each character."""
    fleet = fleet_of()
    address = fleet.add(4, context_tokens=CONTEXT)
    fleet.pick(**asked(100, 10))
    assert tokens_of(fleet, address).held_tokens == 400 + TEMPLATE_TOKENS


def test_a_full_context_is_worth_waiting_for_like_full_slots() -> None:
    """The server with the prompt in its cache has free slots and no room; it is waited for, as
    long as that saves more than it costs. Once it has room nobody waits."""
    fleet = sized(fleet_of())
    blocks = tuple(range(1, 40))
    first = fleet.add(4, context_tokens=4 * CONTEXT)
    request = asked(2500, 10, prompt_blocks=blocks)
    leases = [fleet.pick(**request)]
    answered(fleet, leases[0], 60.0)
    second = fleet.add(4, context_tokens=4 * CONTEXT)
    busy = fleet.pick(**asked(2500, 1400, prompt_blocks=blocks))
    assert busy.address == first
    ticket = fleet.queue(**request)
    assert fleet.dispatcher.state.affinity_waits.first_pinned_to(first) is ticket
    fleet.finish(busy)
    assert fleet.served(ticket).address == first
    assert fleet.pick(**asked(1, 1)).address == second


def test_age_gives_a_large_request_its_turn_among_critical_ones() -> None:
    """Critical requests keep coming and pass it wherever they fit. Once it has waited long enough
    its reservation is exclusive, and it is served."""
    fleet = sized(fleet_of(GOLD))
    fleet.add(4, context_tokens=CONTEXT)
    critical = asked(150, 100, objective="gold")
    running = [fleet.pick(**critical) for _ in range(3)]
    large = fleet.queue(**asked(700, 200))
    waiting = [fleet.queue(**critical) for _ in range(2)]
    for _ in range(40):
        fleet.pass_time(1)
        outcome = fleet.submit(**critical)
        if isinstance(outcome, Queued):
            waiting.append(outcome.ticket)
        fleet.finish(running.pop(0) if running else fleet.served(waiting.pop(0)))
        if not fleet.is_waiting(large):
            break
    assert fleet.served(large)


def test_a_request_waits_for_ever_only_for_others() -> None:
    """What foreign requests hold may never become free."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    pool = fleet.dispatcher.ledger.endpoint_slots(address)
    fleet.pick(**asked(900, 100))
    demand = TokenDemand(300, 10)
    assert pool.can_ever_fit(1, demand) and not pool.fits(1, demand)
    fleet.now += 1
    readings = (reading(0, 900, 0), reading(1, 900, 0))
    fleet.scrape(address, slots=4, busy_slots=2, slot_readings=readings)
    assert not pool.can_ever_fit(1, demand)


def test_other_leases_than_those_of_the_slots_are_a_fault() -> None:
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    fleet.pick(**asked(100, 100))
    tokens_of(fleet, address).clear()
    assert fleet.dispatcher.faults(fleet.now) == [
        f"{address}: all: other leases hold tokens than slots"
    ]
    fleet.dispatcher.rebuild(fleet.now)
    assert fleet.dispatcher.faults(fleet.now) == []


# Whether a context is shared


def test_four_slots_are_taken_to_share_their_context_until_they_hold_more() -> None:
    """A server that was started without a number of slots has four. If each has a context of its
    own, its slots together soon hold more than one of them may, idle ones included."""
    fleet = sized(SteeredFleet())
    address = fleet.add(4, context_tokens=CONTEXT)
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    shared = endpoint.shared_context(None, 4)
    assert shared == (CONTEXT, ContextSource.GUESS)
    fleet.pick(**asked(600, 300))
    ticket = fleet.queue(**asked(600, 300))
    fleet.now += 1
    ended = tuple(EndedTask(task_id=task, held_tokens=700) for task in range(3))
    fleet.scrape(
        address, slots=4, busy_slots=1, slot_readings=(reading(3, 600, 50),), ended_tasks=ended
    )
    assert fleet.served(ticket)
    assert tokens_of(fleet, address).capacity_tokens == 2750
    fleet.now += 1
    fleet.scrape(address, slots=4, busy_slots=0, instance="a")
    fleet.now += 1
    fleet.scrape(address, slots=4, busy_slots=0, instance="b")
    assert endpoint.shared_context(None, 4) == (CONTEXT, ContextSource.GUESS)  # another process


@pytest.mark.parametrize(
    ("setting", "reported", "slots", "expected"),
    [
        (ContextSharing.AUTO, None, 4, (CONTEXT, ContextSource.GUESS)),
        (ContextSharing.AUTO, None, 2, None),
        (ContextSharing.AUTO, 0, 4, None),
        (ContextSharing.AUTO, 4096, 4, (4096, ContextSource.ARGUMENTS)),
        (ContextSharing.AUTO, 4096, 1, None),
        (ContextSharing.SHARED, None, 8, (CONTEXT, ContextSource.SETTING)),
        (ContextSharing.SHARED, 4096, 8, (4096, ContextSource.SETTING)),
        (ContextSharing.PER_SLOT, 4096, 4, None),
    ],
)
def test_who_says_whether_a_context_is_shared(
    setting: ContextSharing,
    reported: int | None,
    slots: int,
    expected: tuple[int, ContextSource] | None,
) -> None:
    """The setting, then the arguments of the process, then a guess by the number of slots."""
    fleet = SteeredFleet(context=setting)
    address = fleet.add(slots, context_tokens=CONTEXT, shared_tokens=reported)
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    assert endpoint.shared_context(None, slots) == expected
    tokens = fleet.dispatcher.ledger.endpoint_slots(address).tokens
    assert (None if tokens is None else tokens.capacity_tokens) == (expected and expected[0])


def test_without_the_size_of_a_context_nothing_is_guessed() -> None:
    fleet = SteeredFleet()
    address = fleet.add(4)
    assert fleet.dispatcher.ledger.endpoint_slots(address).tokens is None


def test_the_models_of_a_router_say_it_one_by_one() -> None:
    models = (
        ModelReading(name="a", slots=4, busy_slots=0, shared_tokens=2048),
        ModelReading(name="b", slots=4, busy_slots=0, shared_tokens=0),
    )
    fleet = SteeredFleet()
    address = fleet.add(8, models=models, context_tokens=CONTEXT)
    pools = fleet.dispatcher.ledger.endpoint_slots(address).model_pools
    assert pools["a"].tokens is not None and pools["a"].tokens.capacity_tokens == 2048
    assert pools["b"].tokens is None
    lease = fleet.pick(model="b")
    assert not fleet.dispatcher.overflowed(lease, fleet.now)


def test_slots_without_tokens_are_no_capacity_in_health_and_forecasts() -> None:
    """Four slots whose context one request fills serve as one: neither are three idle for outside
    load balancers, nor does the queue move four times as fast, or with the first end."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    for _ in range(20):
        lease = fleet.pick(**asked(600, 300))
        fleet.dispatcher.responded(lease, fleet.now, is_stream=False)
        fleet.now += 10.0
        fleet.finish(lease)
    fleet.pick(**asked(600, 300))
    assert fleet_health(fleet.dispatcher.view).idle == 3, "nobody waits: a small request may begin"
    tickets = [fleet.queue(**asked(600, 300)) for _ in range(4)]
    health = fleet_health(fleet.dispatcher.view)
    assert (health.idle, health.processing, health.http_status) == (0, 4, 200)
    estimate, _ = fleet.dispatcher.view.latency_at(address, fleet.now)
    expected_s = fleet.dispatcher.view.position_of(tickets[-1], fleet.now).expected_s
    assert expected_s == pytest.approx(3 * estimate.slot_s), "the first has its reservation"


# Overflows


def test_an_overflow_shows_that_the_context_is_shared() -> None:
    """All that ran end at once, and count as one. It is shown at the endpoint, and from then on
    requests wait for room there."""
    fleet = sized(SteeredFleet())
    address = fleet.add(3, context_tokens=CONTEXT)
    leases = [fleet.pick(**asked(400, 300)) for _ in range(3)]
    for lease in leases:
        assert fleet.dispatcher.overflowed(lease, fleet.now)
        fleet.dispatcher.responded(lease, fleet.now, is_error=True)
        fleet.finish(lease)
        fleet.now += 0.1
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None and endpoint.overflows == 1
    assert endpoint.shared_context(None, 3) == (CONTEXT, ContextSource.OVERFLOW)
    assert [issue.code for issue in endpoint.issues] == ["context-overflow"]
    assert tokens_of(fleet, address).margin_tokens > CONTEXT / 16
    fleet.pick(**asked(400, 300))
    fleet.dispatcher.cancel(fleet.queue(**asked(400, 300)), fleet.now)
    fleet.now += 60
    second = fleet.pick(**asked(50, 50))
    assert fleet.dispatcher.overflowed(second, fleet.now) and endpoint.overflows == 2


def test_what_cannot_be_an_overflow_is_a_failure() -> None:
    """A request that is alone is cut off instead; and a slot with a context of its own has none to
    share."""
    fleet = SteeredFleet(context=ContextSharing.SHARED)
    fleet.add(4, context_tokens=CONTEXT)
    assert not fleet.dispatcher.overflowed(fleet.pick(**asked(100, 10)), fleet.now)
    split = SteeredFleet(context=ContextSharing.PER_SLOT)
    address = split.add(4, context_tokens=CONTEXT)
    lease = split.pick(**asked(100, 10))
    split.pick(**asked(100, 10))
    assert not split.dispatcher.overflowed(lease, split.now)
    told = SteeredFleet()
    told.add(4, context_tokens=CONTEXT, shared_tokens=0)
    lease = told.pick(**asked(100, 10))
    told.pick(**asked(100, 10))
    assert not told.dispatcher.overflowed(lease, told.now)
    split.dispatcher.set_members("test", [], split.now)
    for one in list(split.dispatcher.ledger.leases()):
        split.finish(one)
    assert (
        not split.dispatcher.overflowed(lease, split.now) and address not in split.dispatcher.fleet
    )


def test_an_overflow_of_unknown_size_is_remembered() -> None:
    """The server has not said how long its context is: nothing can be leased, but it is known."""
    fleet = SteeredFleet()
    address = fleet.add(4)
    lease = fleet.pick(**asked(100, 10))
    fleet.pick(**asked(100, 10))
    assert fleet.dispatcher.overflowed(lease, fleet.now)
    assert fleet.dispatcher.ledger.endpoint_slots(address).tokens is None


# What people see


def test_why_requests_wait_for_tokens() -> None:
    """The one that is next waits for tokens, those behind it for the slots that are kept for it."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    fleet.pick(**asked(500, 400))
    first, second = fleet.queue(**asked(400, 300)), fleet.queue(**asked(400, 300))
    waits = fleet.dispatcher.view.waits()
    assert waits.reason_of(first) is WaitReason.TOO_FEW_TOKENS
    assert waits.reason_of(second) is WaitReason.RESERVED
    by_reason = waits.by_model()[""].by_reason
    assert by_reason == {WaitReason.TOO_FEW_TOKENS: 1, WaitReason.RESERVED: 1}
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    counts = fleet.dispatcher.view.token_counts(endpoint)
    assert counts is not None and counts.source is ContextSource.SETTING
    assert counts.total == CONTEXT and counts.held == pytest.approx(590, abs=10)
    assert counts.reserved > 900 and counts.free == 0
    fleet.scrape(address, status=ScrapeStatus.UNREACHABLE)
    assert fleet.dispatcher.view.token_counts(endpoint) is None, "it is down"


def test_no_more_tokens_are_shown_than_there_are() -> None:
    """Although estimates may add up to more."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    fleet.pick(**asked(2 * CONTEXT, 10))
    counts = fleet.dispatcher.view.token_counts(endpoint)
    assert counts is not None and counts.held == counts.total == CONTEXT


def test_an_explanation_names_the_tokens() -> None:
    """What is held, what is expected, and what the prompt may take; nothing where it fits."""
    fleet = sized(fleet_of())
    fleet.add(4, context_tokens=CONTEXT)
    fleet.pick(**asked(500, 400))
    for prompt, is_named in ((400, True), (1, False)):
        request = Request(id="r", timeout_s=1.0, **asked(prompt, 10))
        filtered = explain(fleet.dispatcher.view, request, fleet.now).candidates[0].filtered
        assert any("its slots share 1024 tokens" in why for why in filtered) is is_named


def test_no_tokens_are_shown_of_split_contexts() -> None:
    fleet = SteeredFleet(context=ContextSharing.PER_SLOT)
    endpoint = fleet.dispatcher.fleet.get(fleet.add(4, context_tokens=CONTEXT))
    assert endpoint is not None and fleet.dispatcher.view.token_counts(endpoint) is None


def test_slots_that_tokens_do_not_suffice_for_are_no_capacity() -> None:
    """While a request waits for tokens, a server of four slots counts as one of those in use, so
    that the advice is to add servers."""
    fleet = sized(fleet_of())
    address = fleet.add(4, context_tokens=CONTEXT)
    pool = fleet.dispatcher.ledger.endpoint_slots(address)
    fleet.pick(**asked(500, 400))
    assert pool.usable_slots == 4
    ticket = fleet.queue(**asked(400, 300))
    assert pool.usable_slots == 1
    fleet.dispatcher.cancel(ticket, fleet.now)
    assert pool.usable_slots == 4


def test_a_prompt_that_is_still_read_shows_no_length() -> None:
    """Before its first token a slot holds a part of the prompt, or what the last task left."""
    fleet = fleet_of()
    address = fleet.add(4, context_tokens=CONTEXT)
    lease = fleet.pick(**asked(100, 10))
    fleet.now += 1
    fleet.scrape(address, slots=4, busy_slots=1, slot_readings=(reading(0, 30, 0),))
    assert tokens_of(fleet, address).claims[lease.id].prompt_tokens == 400 + TEMPLATE_TOKENS


def test_a_pick_asks_one_endpoint_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs more than all else of a pick. If the cheapest has none, the others are asked."""
    fleet = sized(fleet_of())
    for _ in range(4):
        fleet.add(slots=4, context_tokens=CONTEXT, models=("tiny",))
    pools: list[TokenPool] = []
    admits = TokenPool.admits

    def counted(pool: TokenPool, demand: TokenDemand) -> bool:
        pools.append(pool)
        return admits(pool, demand)

    monkeypatch.setattr(TokenPool, "admits", counted)
    leases = []
    for _ in range(4):
        leases.append(fleet.pick(**asked(100)))
        assert len(pools) == 1
        pools.clear()
    assert {lease.address for lease in leases} == set(fleet.addresses)
    ticket = fleet.queue(**asked(100))
    assert len(set(map(id, pools))) == 4
    pools.clear()
    state = fleet.dispatcher.state
    assert state.endpoint_picker.choose(ticket.resolved, ticket.request, fleet.now) is None
    assert len(set(map(id, pools))) == len(pools) == 3, "slots of one are reserved by now"
    fleet.finish(leases[2])
    assert fleet.served(ticket).address == leases[2].address


def test_a_session_goes_elsewhere_if_its_endpoint_has_no_room() -> None:
    fleet = sized(fleet_of())
    for _ in range(2):
        fleet.add(slots=4, context_tokens=CONTEXT, models=("tiny",))
    first = fleet.pick(**asked(100, session_id="s"))
    assert fleet.pick(**asked(100, session_id="s")).address != first.address


def test_room_is_found_beyond_the_candidates() -> None:
    """Those with the most free slots are full; one with fewer is not."""
    fleet = sized(fleet_of())
    roomy = fleet.add(slots=4, context_tokens=CONTEXT, models=("tiny",))
    for _ in range(3):
        fleet.pick(**asked(10, 10))
    for _ in range(5):
        fleet.add(slots=4, context_tokens=CONTEXT, models=("tiny",))
    for _ in range(5):
        assert fleet.pick(**asked(700)).address != roomy
    assert fleet.pick(**asked(100, 100)).address == roomy
