"""Claims about extproc/core/views/explain.py."""

from __future__ import annotations

from extproc.core.decision import Picked
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.objective import Criticality, Objective
from extproc.core.observation import ModelReading
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.rejection import Reason
from extproc.core.request import Request
from extproc.core.views.explain import Candidate, Explanation, explain, explain_passing
from tests.fakes.steered_fleet import SteeredFleet

CHAIN = tuple(range(40))


def ask(fleet: SteeredFleet, **asked: object) -> Explanation:
    request = Request(**{"id": "r", "timeout_s": 60.0, **asked})  # type: ignore[arg-type]
    return explain(fleet.dispatcher.view, request, fleet.now)


def test_it_names_the_picked_endpoint_and_all_costs() -> None:
    fleet = SteeredFleet()
    for _ in range(3):
        fleet.add(4, models=["m"], context_tokens=8192)
    lease = fleet.pick(prompt_blocks=CHAIN, prompt_tokens=2600)
    fleet.dispatcher.responded(lease, fleet.now + 1.5)
    fleet.finish(lease)
    explanation = ask(fleet, prompt_blocks=CHAIN, prompt_tokens=2600)
    outcome = fleet.submit(prompt_blocks=CHAIN, prompt_tokens=2600)
    assert isinstance(outcome, Picked)
    assert explanation.chosen == outcome.lease.address == lease.address
    scores = {score.name: score.value for score in explanation.candidates[0].scores}
    assert scores["saved_s"] > 0.5
    total_s = scores["first_token_s"] + scores["answer_s"] + scores["adapter_s"]
    assert abs(scores["cost_s"] - total_s) < 1e-9
    details = [[s.detail for s in c.scores if s.detail] for c in explanation.candidates]
    (detail,) = details[0]
    assert detail.startswith("about ") and detail.endswith(" tokens in its cache")
    assert not any(details[1:]), "an endpoint of which nothing special is known needs no note"


def numbers(candidate: Candidate) -> dict[str, float]:
    return {score.name: score.value for score in candidate.scores}


def test_for_a_router_the_slots_of_the_model_count() -> None:
    """One has one of four slots free for the model and is idle otherwise; the other has all four
    free, and is busy with another model."""
    fleet = SteeredFleet()
    crowded, free = fleet.add(8, models=two(0, 0)), fleet.add(8, models=two(0, 0))
    for address, model, count in ((crowded, "b", 3), (free, "a", 4)):
        for _ in range(count):
            fleet.pick(model=model, allowed=frozenset({address}))
    explanation = ask(fleet, model="b", prompt_tokens=100)
    first, second = explanation.candidates
    assert (first.address, second.address) == (explanation.chosen, crowded) == (free, crowded)
    assert (numbers(first)["free_share"], numbers(second)["free_share"]) == (1.0, 0.25)
    assert numbers(first)["cost_s"] < numbers(second)["cost_s"]


def two(busy_a: int, busy_b: int) -> tuple[ModelReading, ...]:
    """A router's models, both loaded, with four slots each."""
    return (
        ModelReading(name="a", slots=4, busy_slots=busy_a),
        ModelReading(name="b", slots=4, busy_slots=busy_b),
    )


def test_a_cache_that_does_not_count_is_shown() -> None:
    """Its server is used beyond its share: its cost without the cache decides."""
    fleet = SteeredFleet()
    target, other = (fleet.add(4, context_tokens=65_536) for _ in range(2))
    for _ in range(20):
        lease = fleet.pick(prompt_blocks=CHAIN, prompt_tokens=2600, allowed=frozenset({target}))
        fleet.now += 1.0
        fleet.dispatcher.responded(lease, fleet.now)
        fleet.finish(lease)
    candidates = {
        c.address: c for c in ask(fleet, prompt_blocks=CHAIN, prompt_tokens=2600).candidates
    }
    assert numbers(candidates[target])["saved_s"] == 0.0
    assert numbers(candidates[target])["first_token_s"] > 0.5
    assert "used beyond its share" in candidates[target].scores[-1].detail
    assert not candidates[other].scores[-1].detail


def test_an_endpoint_that_would_miss_the_slo_ranks_behind() -> None:
    """Its response would end sooner, but its first token would come too late."""
    fleet = SteeredFleet()
    late, prompt = (fleet.add(2) for _ in range(2))
    state = fleet.dispatcher.state
    for _ in range(40):
        state.latency.endpoint(late).answered(100, 2.0)
        state.latency.endpoint(prompt).answered(100, 0.1)
        for address in (late, prompt):
            state.latency.endpoint(address).lease_ended(1.0)
    for _ in range(2):
        fleet.pick(allowed=frozenset({prompt}))
    explanation = ask(fleet, prompt_tokens=100, ttft_s=1.0)
    details = {c.address: c.scores[3].detail for c in explanation.candidates}
    assert details == {late: "later than the SLO of 1 s", prompt: ""}


def test_it_shows_why_an_endpoint_is_filtered() -> None:
    fleet = SteeredFleet()
    first = fleet.add(1, models=["a"], adapters=["bard"])
    second = fleet.add(1, models=["b"], adapters=["pirate"])
    left_out = {c.address: c.filtered for c in ask(fleet, model="a", adapter="pirate").candidates}
    assert left_out[first] == ("it has no adapter pirate",)
    assert left_out[second] == ("it does not serve a",)


def test_it_shows_debt_position_and_time() -> None:
    """For a tenant with the only slot: the slot is its debt, and two requests are ahead."""
    fleet = SteeredFleet()
    fleet.add(1)
    for _ in range(30):
        lease = fleet.pick()
        fleet.now += 4.0
        fleet.finish(lease)
    fleet.pick(fairness_id="greedy")
    for _ in range(2):
        fleet.queue(fairness_id="greedy")
    explanation = ask(fleet, fairness_id="greedy")
    assert explanation.position == 3
    assert explanation.expected_s is not None and 9.0 < explanation.expected_s < 15.0
    assert 3.0 < float(explanation.resolved["fairness_debt_s"]) < 5.0
    assert float(ask(fleet, fairness_id="other").resolved["fairness_debt_s"]) == 0.0


def test_it_shows_criticality_position_and_rejection() -> None:
    gold = Objective(name="gold", criticality=Criticality.CRITICAL, queue_s=1.0)
    cheap = Objective(name="cheap", criticality=Criticality.SHEDDABLE)
    fleet = SteeredFleet(gold, cheap, queue_max_requests=2)
    fleet.add(1)
    fleet.pick()
    for _ in range(2):
        fleet.queue(fairness_id="crowd")
    waiting = ask(fleet, objective="gold")
    assert (waiting.position, waiting.reason) == (1, None)
    assert waiting.resolved["criticality"] == "critical"
    assert waiting.resolved["slo_attainment"] == "100.0%"
    assert ask(fleet).reason is Reason.QUEUE_FULL
    assert ask(fleet, objective="cheap").reason is Reason.SHED


def test_a_dry_run_changes_nothing() -> None:
    """The same decisions follow, with and without a thousand dry runs between."""
    chosen = []
    for questions in (0, 50):
        fleet = SteeredFleet(splits={"chat": {"a": 1.0, "b": 1.0}})
        for _ in range(4):
            fleet.add(3, models=["a", "b"])
        picked = []
        for _ in range(12):
            for _ in range(questions):
                ask(fleet, model="chat", fairness_id="someone", prompt_tokens=100)
            picked.append(fleet.pick(model="chat").address)
        assert len(fleet.dispatcher.state.fairness) == 1
        chosen.append(picked)
    assert chosen[0] == chosen[1]


def test_the_server_of_a_session_is_shown() -> None:
    fleet = SteeredFleet()
    target, _ = fleet.add(2), fleet.add(2)
    assert "session_served_by" not in ask(fleet, session_id="s").resolved
    fleet.finish(fleet.pick(session_id="s", allowed=frozenset({target})))
    found = ask(fleet, session_id="s")
    assert (found.resolved["session_served_by"], found.chosen) == (str(target), target)


def test_names_that_nobody_serves_are_explained() -> None:
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    fleet.add(1, models=["a"])
    explanation = ask(fleet, model="b")
    assert explanation.reason is Reason.MODEL_NOT_FOUND and explanation.resolved["model"] == "b"


def test_a_picker_that_shuts_down_explains_that() -> None:
    fleet = SteeredFleet()
    fleet.add(1)
    fleet.dispatcher.close(fleet.now)
    assert ask(fleet).reason is Reason.SHUTTING_DOWN


def test_every_cause_that_keeps_an_endpoint_out_is_shown() -> None:
    """An endpoint may have several."""
    fleet = SteeredFleet()
    leaving, drained, down, unrouted, unseen, full = (
        *(fleet.add(1) for _ in range(4)),
        fleet.join(),
        fleet.add(1),
    )
    for address in (leaving, full):
        fleet.pick(allowed=frozenset({address}))
    dispatcher = fleet.dispatcher
    dispatcher.set_intent(drained, Intent.DRAINING, fleet.now)
    dispatcher.connect_failed(down, fleet.now)
    dispatcher.set_routable(unrouted, False, fleet.now)
    stay = [EndpointSpec(address=one) for one in fleet.addresses if one != leaving]
    dispatcher.set_members("test", stay, fleet.now)
    left_out = {one.address: " ".join(one.filtered) for one in ask(fleet).candidates}
    assert "removed from the fleet" in left_out[leaving]
    assert "an operator made it draining" in left_out[drained]
    assert "it is down" in left_out[down]
    assert "not every Envoy knows it" in left_out[unrouted]
    assert "has not reported its number of slots" in left_out[unseen]
    assert "0 of its 1 slots are free (1 leased, 0 foreign)" in left_out[full]


def test_a_request_that_takes_no_slot_goes_to_the_best_endpoint() -> None:
    """Full or not; without an endpoint it goes nowhere."""
    assert explain_passing(SteeredFleet().dispatcher.view).chosen is None
    fleet = SteeredFleet()
    full = fleet.add(1)
    fleet.pick()
    explanation = explain_passing(fleet.dispatcher.view)
    assert explanation.chosen == full and not explanation.takes_slot
    fleet.dispatcher.connect_failed(full, fleet.now)
    assert explain_passing(fleet.dispatcher.view).chosen is None


def test_the_endpoint_that_a_request_would_wait_for_is_shown() -> None:
    """It has the beginning of the prompt, and is busy."""
    fleet = SteeredFleet()
    target, _ = (fleet.add(1, context_tokens=65_536) for _ in range(2))
    asked = {"prompt_blocks": tuple(range(400)), "prompt_tokens": 26_000}
    lease = fleet.pick(**asked, allowed=frozenset({target}))
    fleet.dispatcher.responded(lease, fleet.now + 13.0)
    explanation = ask(fleet, **asked)
    assert explanation.chosen is None and explanation.resolved["waits_for"] == str(target)


def test_only_one_endpoint_at_a_time_loads_a_model() -> None:
    fleet = SteeredFleet()
    unloaded = (ModelReading(name="a", is_loaded=False), ModelReading(name="b", slots=2))
    for _ in range(2):
        fleet.add(2, models=unloaded)
    loading = fleet.pick(model="a").address
    left_out = {one.address: one.filtered for one in ask(fleet, model="a").candidates}
    assert all("only one at a time" in filtered[0] for filtered in left_out.values())
    assert loading in left_out


def test_the_answers_that_a_prompt_would_delay_are_shown() -> None:
    """Where the order is by size they count."""
    fleet = SteeredFleet(order=QueueOrder(discipline=Discipline.SHORTEST_EXPECTED))
    fleet.add(4)
    assert "stall_s" not in numbers(ask(fleet, prompt_tokens=2600).candidates[0])
    fleet.pick()
    (stall,) = (
        score
        for score in ask(fleet, prompt_tokens=2600).candidates[0].scores
        if score.name == "stall_s"
    )
    assert stall.value > 0.0 and stall.detail
