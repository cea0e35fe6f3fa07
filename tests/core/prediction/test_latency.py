"""Claims about the latency model, and forecasts by it: extproc/core/views/forecast.py."""

from __future__ import annotations

from random import Random

import pytest

from extproc.core.address import Address
from extproc.core.objective import Objective
from extproc.core.observation import ModelReading, SlotReading
from extproc.core.prediction.latency import DEFAULT_ESTIMATE, LatencyModel
from extproc.core.prediction.statistics import DecayingMean, RobustLinearFit
from tests.fakes.steered_fleet import SteeredFleet

A, B, C = (Address("10.0.0.1", 8000 + number) for number in range(3))


def test_a_mean_decays_and_resists_one_outlier() -> None:
    mean = DecayingMean(decay=0.9, clip=8.0)
    assert mean.value(7.0) == 7.0
    for _ in range(100):
        mean.add(2.0)
    mean.add(1e6)
    assert mean.value(0.0) < 4.0
    for _ in range(200):
        mean.add(5.0)
    assert mean.value(0.0) == pytest.approx(5.0, abs=0.1)


def test_a_line_is_found_through_noise_and_outliers() -> None:
    random = Random(1)
    fit = RobustLinearFit()
    for number in range(300):
        tokens = random.uniform(100, 4000)
        seconds = 0.2 + 0.001 * tokens * random.uniform(0.9, 1.1)
        fit.add(tokens, 60.0 if number % 40 == 39 else seconds)
    fixed_s, prefill_s = fit.coefficients((0.1, 0.0005))
    assert prefill_s == pytest.approx(0.001, rel=0.3)
    assert fixed_s + prefill_s * 2000 == pytest.approx(2.2, rel=0.25)


def test_points_with_equal_x_change_equal_parts_alike() -> None:
    """0.1 + 0.001 * 100 is 0.2, and 0.5 was seen as often as the default counts: the mean of the
    two is 0.35, 1.75 times as much of both parts."""
    fit = RobustLinearFit()
    for _ in range(2):
        fit.add(100.0, 0.5)
    a, b = fit.coefficients((0.1, 0.001), prior_weight=2.0)
    assert (a, b) == pytest.approx((0.175, 0.00175), rel=0.01)


def test_a_short_first_prompt_does_not_make_a_server_look_fast() -> None:
    """What it shows is the fixed time: next to nothing of it was prefill."""
    fit = RobustLinearFit()
    fit.add(2.0, 0.007)
    a, b = fit.coefficients((0.1, 0.0005))
    assert b == pytest.approx(0.0005, rel=0.01)
    assert a < 0.1


def test_a_slow_first_prompt_does_not_make_a_server_look_slow_for_cached_ones() -> None:
    """0.1 of the 0.6 s that were expected is the fixed time: of what is more, 1 part of 26."""
    fit = RobustLinearFit()
    fit.add(1000.0, 1.2)
    a, b = fit.coefficients((0.1, 0.0005), prior_weight=1.0)
    assert a + 1000.0 * b == pytest.approx(0.9)
    assert a == pytest.approx(0.1 + 0.3 / 26)


def test_unknown_endpoints_are_assumed_to_be_the_median() -> None:
    timing = LatencyModel()
    assert timing.estimate(C, 0.0) == DEFAULT_ESTIMATE
    for address, prefill_s in ((A, 0.001), (B, 0.003)):
        for tokens in range(100, 5000, 100):
            timing.endpoint(address).answered(tokens, 0.1 + prefill_s * tokens)
            timing.endpoint(address).lease_ended(2.0)
    assert timing.estimate(A, 10.0).prefill_s == pytest.approx(0.001, rel=0.1)
    assert timing.estimate(C, 10.0).prefill_s == pytest.approx(0.002, rel=0.1)


def test_the_token_rate_is_computed_from_two_scrapes() -> None:
    timing = LatencyModel()
    watch = timing.endpoint(A)
    for second in range(1, 200):
        busy = 1 + second % 4
        then = float(2 * second)
        watch.observe_slots([SlotReading(task_id=second, decoded_tokens=10)], busy, then, then)
        tokens = round(1 / (0.01 + 0.002 * busy))
        reading = SlotReading(task_id=second, decoded_tokens=10 + tokens)
        watch.observe_slots([reading], busy, then + 1.0, then + 1.0)
    speed = timing.estimate(A, 1000.0)
    assert speed.token_s(1) == pytest.approx(0.012, rel=0.1)
    assert speed.token_s(4) == pytest.approx(0.018, rel=0.1)


def test_the_endpoint_that_meets_the_slo_is_picked() -> None:
    """A slow server has more free slots; the fast one responds in time."""
    fleet = SteeredFleet()
    slow, fast = fleet.add(8), fleet.add(2)
    for address, seconds in ((slow, 3.0), (fast, 0.2)):
        for _ in range(20):
            lease = fleet.pick(allowed=frozenset({address}), prompt_tokens=100)
            fleet.dispatcher.responded(lease, fleet.now + seconds)
            fleet.now += seconds
            fleet.finish(lease)
    fleet.now += 2.0
    fleet.pick(allowed=frozenset({fast}))
    assert fleet.pick(prompt_tokens=100, ttft_s=1.0).address == fast


@pytest.mark.parametrize("has_slo", [True, False])
def test_an_slo_precedes_the_lowest_cost(has_slo: bool) -> None:
    """One endpoint is soon with its first token and long with the rest, the other is later and done
    sooner: the total decides, unless only the first meets the SLO. If none does, the total decides
    as well."""
    fleet = SteeredFleet(Objective(name="chat", ttft_s=1.0), Objective(name="hasty", ttft_s=0.01))
    soon, cheap = fleet.add(4), fleet.add(4)
    for address, first_s, token_s in ((soon, 0.3, 0.08), (cheap, 2.0, 0.01)):
        watch = fleet.dispatcher.state.latency.endpoint(address)
        for second in range(40):
            then = fleet.now + 2.0 * second
            watch.answered(100.0, first_s)
            watch.lease_ended(first_s + 100 * token_s)
            for late_s, decoded in ((0.0, 1), (1.0, 1 + round(1 / token_s))):
                reading = SlotReading(task_id=second, decoded_tokens=decoded)
                watch.observe_slots([reading], 1, then + late_s, then + late_s)
    fleet.now += 100.0
    asked = {"prompt_tokens": 100, "max_tokens": 200}
    assert fleet.pick(objective="hasty", **asked).address == cheap
    best = soon if has_slo else cheap
    assert fleet.pick(objective="chat" if has_slo else None, **asked).address == best
    assert fleet.pick(ttft_s=1.0 if has_slo else None, **asked).address == best


def test_positions_and_expected_seconds() -> None:
    """Two slots of two seconds each free one a second: the third waits three."""
    fleet = SteeredFleet()
    fleet.add(2)
    for _ in range(30):
        lease = fleet.pick()
        fleet.now += 2.0
        fleet.finish(lease)
    for _ in range(2):
        fleet.pick()
    tickets = [fleet.queue() for _ in range(5)]
    positions = [fleet.dispatcher.view.position_of(ticket, fleet.now) for ticket in tickets]
    assert [(queue_position.position, queue_position.queued) for queue_position in positions] == [
        (n, 5) for n in range(1, 6)
    ]
    assert [queue_position.expected_s for queue_position in positions] == pytest.approx(
        [1, 2, 3, 4, 5], rel=0.3
    )


@pytest.mark.parametrize("is_bounded", [True, False])
def test_answers_with_a_known_end_free_their_slots_soon(is_bounded: bool) -> None:
    """By the tokens that may still come according to scrapes; a request that ended before holds no
    slot."""
    fleet = SteeredFleet()
    address = fleet.add(2)
    for _ in range(30):
        lease = fleet.pick()
        fleet.now += 60.0
        fleet.finish(lease)
    leases = [fleet.pick() for _ in range(2)]
    for decoded in (10, 60):
        fleet.now += 5.0
        readings = tuple(
            SlotReading(
                task_id=task,
                decoded_tokens=decoded,
                remaining_tokens=length - decoded if is_bounded else None,
            )
            for task, length in enumerate((100, 200))
        )
        fleet.scrape(address, slots=2, busy_slots=2, slot_readings=readings)
    tickets = [fleet.queue() for _ in range(3)]
    expected_s = [
        fleet.dispatcher.view.position_of(ticket, fleet.now).expected_s for ticket in tickets
    ]
    if not is_bounded:
        assert expected_s == pytest.approx([30, 60, 90], rel=0.2)
        return
    assert expected_s == pytest.approx([4, 14, 90], rel=0.2), "40 and 140 tokens at 0.1 s"
    fleet.finish(leases[0])
    queue_position = fleet.dispatcher.view.position_of(tickets[1], fleet.now)
    assert queue_position.position == 1 and queue_position.expected_s == pytest.approx(14, rel=0.2)


def test_a_position_counts_only_tickets_that_are_served_before() -> None:
    """A thousand tickets of another tenant are not ahead of a tenant's first."""
    fleet = SteeredFleet(queue_max_requests=2000)
    fleet.add(1)
    fleet.pick()
    for _ in range(1000):
        fleet.queue(fairness_id="crowd")
    queue_position = fleet.dispatcher.view.position_of(fleet.queue(fairness_id="other"), fleet.now)
    assert queue_position.position <= 2 and queue_position.queued == 1001


def test_a_position_counts_objectives_with_lower_attainment() -> None:
    objectives = [Objective(name=name, queue_s=1.0) for name in ("better", "worse")]
    fleet = SteeredFleet(*objectives)
    fleet.add(1)
    fleet.pick()
    fleet.dispatcher.state.slo_attainment.record("worse", was_met=False, now=fleet.now)
    first = fleet.queue(objective="better")
    for _ in range(3):
        fleet.queue(objective="worse")
    assert fleet.dispatcher.view.position_of(first, fleet.now).position == 4


def test_foreign_slots_are_not_freed_for_us() -> None:
    """Three of four are foreign: only the fourth is freed again and again."""
    fleet = SteeredFleet()
    address = fleet.add(4)
    for _ in range(30):
        lease = fleet.pick()
        fleet.now += 4.0
        fleet.finish(lease)
    fleet.now += 100.0
    fleet.scrape(address, slots=4, busy_slots=3)
    fleet.pick()
    queue_position = fleet.dispatcher.view.position_of(fleet.queue(), fleet.now)
    assert queue_position.expected_s == pytest.approx(4.0, rel=0.3)


def test_foreign_slots_of_another_model_do_not_count() -> None:
    """Nor do answers that end there free any slot of this model."""
    fleet = SteeredFleet()

    def models(foreign: int) -> dict[str, object]:
        readings = [
            ModelReading(name=name, slots=4, busy_slots=busy)
            for name, busy in (("a", foreign), ("b", 0))
        ]
        return {"slots": 8, "busy_slots": foreign, "models": readings}

    address = fleet.add(8, models=models(0)["models"])
    for _ in range(30):
        lease = fleet.pick(model="b")
        fleet.now += 4.0
        fleet.finish(lease)
    fleet.now += 100.0
    fleet.scrape(address, **models(3))
    run = fleet.dispatcher.state.in_flight.get(fleet.pick(model="a"))
    assert run is not None
    run.ends_by = fleet.now
    for _ in range(4):
        fleet.pick(model="b")
    queue_position = fleet.dispatcher.view.position_of(fleet.queue(model="b"), fleet.now)
    assert queue_position.expected_s == pytest.approx(1.0, rel=0.3)


def test_rejections_have_a_retry_time() -> None:
    fleet = SteeredFleet(queue_max_requests=3)
    fleet.add(1)
    for _ in range(20):
        lease = fleet.pick()
        fleet.now += 5.0
        fleet.finish(lease)
    fleet.pick()
    for _ in range(3):
        fleet.queue()
    outcome = fleet.submit()
    assert 15.0 < getattr(outcome, "retry_after_s", 0.0) < 25.0


def test_the_retry_time_is_that_of_the_eligible_servers() -> None:
    """One slot serves the rare model, eight the usual one: a request for the rare one waits
    longer."""
    fleet = SteeredFleet(queue_max_requests=6)
    fleet.add(1, models=["rare"])
    fleet.add(8, models=["usual"])
    for _ in range(30):
        leases = [fleet.pick(model=model) for model in ("rare", "usual")]
        fleet.now += 4.0
        for lease in leases:
            fleet.finish(lease)
    for model, count in (("rare", 1), ("usual", 8)):
        for _ in range(count):
            fleet.pick(model=model)
        for _ in range(3):
            fleet.queue(model=model)
    decisions = {model: fleet.submit(model=model) for model in ("rare", "usual")}
    assert getattr(decisions["rare"], "retry_after_s", 0.0) == pytest.approx(16.0, rel=0.2)
    assert getattr(decisions["usual"], "retry_after_s", 0.0) == pytest.approx(2.0, rel=0.2)


def test_a_few_ends_a_second_are_enough() -> None:
    """The cost of learning is bounded for any number of ends; the next second counts from zero."""
    watch = LatencyModel().endpoint(A)
    assert sum(watch.wants_end(1.0 + number / 1000) for number in range(900)) == 50
    assert watch.wants_end(2.5)


def test_tasks_of_a_new_process_do_not_continue_old_ones() -> None:
    """It numbers them from the start: 500 tokens more in a second would be the rate of both
    together."""
    fleet = SteeredFleet()
    address = fleet.add(1, instance="one")
    for instance, decoded in (("one", 10), ("two", 510), ("two", 530)):
        fleet.now += 1.0
        task = SlotReading(task_id=1, decoded_tokens=decoded)
        fleet.scrape(address, slots=1, busy_slots=1, instance=instance, slot_readings=(task,))
    speed = fleet.dispatcher.state.latency.endpoint(address).estimate(DEFAULT_ESTIMATE)
    assert speed.token_s(1) > DEFAULT_ESTIMATE.token_s(1)


def test_a_prompt_without_an_estimate_has_no_ratio() -> None:
    watch = LatencyModel().endpoint(A)
    watch.sized(500, 0)
    assert watch.tokens_per_estimate is None
    watch.sized(500, 250)
    assert watch.tokens_per_estimate == pytest.approx(2.0, rel=0.5)
