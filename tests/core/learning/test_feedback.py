"""Claims about extproc/core/learning/feedback.py, with numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.observation import ModelReading, ScrapeStatus, SlotReading
from extproc.core.prediction.latency import DEFAULT_ESTIMATE, LatencyEstimate
from extproc.core.prompt_blocks import BLOCK_TOKENS
from extproc.core.request import Kind
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.numbers import numbers
from tests.fakes.steered_fleet import SteeredFleet

PROMPT_TOKENS = 1000
READING_S, TOKEN_S = 4.0, 0.05
"""The true speed of the servers here: a prefill of 4 s, then 20 tokens a second."""


class Served:
    """One endpoint with one slot and one request after another on it."""

    def __init__(self, slots: int = 1) -> None:
        self.fleet = SteeredFleet()
        self.address = self.fleet.add(slots)
        self.task = 0

    def begin(self, **asked: object) -> Lease:
        self.task += 1
        return self.fleet.pick(prompt_tokens=PROMPT_TOKENS, allowed=None, **asked)

    def scrape(self, lease: Lease, after_s: float, *, foreign: int = 0) -> None:
        """What /slots shows then of a request that began with the lease."""
        self.fleet.now = lease.opened_at + after_s
        decoded = 1 + int((after_s - READING_S) / TOKEN_S) if after_s >= READING_S else 0
        ours = SlotReading(
            task_id=self.task,
            prompt_tokens=PROMPT_TOKENS + decoded,
            cached_tokens=0,
            processed_tokens=PROMPT_TOKENS if decoded else 0,
            decoded_tokens=decoded,
        )
        others = tuple(
            SlotReading(task_id=10_000 + number, decoded_tokens=0) for number in range(foreign)
        )
        self.fleet.scrape(
            self.address,
            busy_slots=1 + foreign,
            slot_readings=(ours, *others),
        )

    def headers(self, lease: Lease, after_s: float, **reported: Any) -> None:
        self.fleet.now = lease.opened_at + after_s
        self.fleet.dispatcher.responded(lease, self.fleet.now, **reported)

    def end(self, lease: Lease, after_s: float, end: LeaseEnd = LeaseEnd.SERVED) -> None:
        self.fleet.now = lease.opened_at + after_s
        self.fleet.dispatcher.release(lease, end, self.fleet.now)
        self.fleet.now += 5.0
        self.fleet.scrape(self.address, busy_slots=0)

    @property
    def speed(self) -> LatencyEstimate:
        self.fleet.now += 5.0
        return self.fleet.dispatcher.state.latency.estimate(self.address, self.fleet.now)

    @property
    def first_token_s(self) -> float:
        return self.speed.first_token_s(PROMPT_TOKENS)

    @property
    def trusts_headers(self) -> bool:
        return self.fleet.dispatcher.state.latency.endpoint(self.address).trusts_headers


def stream(server: Served, headers_s: float, scrapes_s: tuple[float, ...], ends_s: float) -> None:
    """One streamed request: its headers, scrapes, its end."""
    lease = server.begin()
    events = sorted([(headers_s, "headers"), *((at, "scrape") for at in scrapes_s)])
    for at, what in events:
        server.headers(lease, at) if what == "headers" else server.scrape(lease, at)
    server.end(lease, ends_s)


def test_headers_before_the_prefill_are_no_samples() -> None:
    """They came after 10 ms; scrapes show a prefill of 4 s."""
    server = Served()
    for _ in range(10):
        stream(server, 0.01, (2.0, 5.0, 7.0), 9.0)
    assert not server.trusts_headers
    assert server.first_token_s == pytest.approx(READING_S, rel=0.1)
    assert server.speed.token_s(1) == pytest.approx(TOKEN_S, rel=0.1)


def test_such_headers_are_no_samples_without_scrapes_either() -> None:
    server = Served()
    for _ in range(10):
        stream(server, 0.01, (2.0, 5.0, 7.0), 9.0)
    for _ in range(100):
        stream(server, 0.01, (), 9.0)
    assert server.first_token_s == pytest.approx(READING_S, rel=0.1)


def test_headers_that_come_with_first_tokens_are_recognised() -> None:
    """Scrapes agree with them: then those count that no scrape saw, too."""
    server = Served()
    for _ in range(5):
        stream(server, READING_S, (5.0, 7.0), 9.0)
    assert server.trusts_headers
    for _ in range(100):
        stream(server, 2.0, (), 9.0)  # it became faster
    assert server.first_token_s == pytest.approx(2.0, rel=0.1)


def test_headers_lose_trust_when_a_scrape_proves_them_early() -> None:
    """A server was replaced by one of another build."""
    server = Served()
    for _ in range(10):
        stream(server, READING_S, (5.0, 7.0), 9.0)
    assert server.trusts_headers
    for _ in range(5):
        stream(server, 0.01, (2.0, 5.0, 7.0), 9.0)
    assert not server.trusts_headers


def test_headers_without_a_scrape_are_no_samples() -> None:
    """After 0.1 s of 20: the prefill may have taken all or none of it. Expected was 0.6."""
    server = Served()
    for _ in range(20):
        stream(server, 0.1, (), 20.0)
    assert server.first_token_s == pytest.approx(0.6)


def test_no_first_token_comes_after_the_end() -> None:
    """Expected after 0.6 s, and over after 0.1: whatever the headers mean, it was sooner."""
    server = Served()
    for _ in range(20):
        stream(server, 0.01, (), 0.1)
    assert server.first_token_s == pytest.approx(0.1, rel=0.5)


def test_a_short_answer_ends_after_its_prefill() -> None:
    """One scrape at 3.8 s saw no token, and at 4.1 s it was over: about 4 s."""
    server = Served()
    for _ in range(20):
        lease = server.begin(max_tokens=2)
        server.headers(lease, 0.01)
        server.scrape(lease, 3.8)
        server.end(lease, 4.1)
    assert server.first_token_s == pytest.approx(READING_S, rel=0.1)


def test_an_answer_that_is_no_stream_is_learned_from_scrapes_too() -> None:
    server = Served()
    for _ in range(10):
        lease = server.begin()
        server.scrape(lease, 5.0)
        server.scrape(lease, 7.0)
        server.headers(lease, 9.0, is_stream=False)
        server.end(lease, 9.0)
    assert server.first_token_s == pytest.approx(READING_S, rel=0.1)


def test_an_embedding_is_only_prefill() -> None:
    server = Served()
    for _ in range(20):
        lease = server.begin(kind=Kind.EMBEDDING)
        server.headers(lease, READING_S, is_stream=False)
        server.end(lease, READING_S)
    assert server.first_token_s == pytest.approx(READING_S, rel=0.1)


@pytest.mark.parametrize("is_answered", [True, False])
def test_errors_are_no_samples(is_answered: bool) -> None:
    """A broken server that responds with 500 at once must look neither the fastest nor one whose
    slots are soon free; and one that was never reached neither."""
    server = Served()
    stream(server, 0.01, (5.0, 7.0), 9.0)
    before = numbers(server.speed)
    for _ in range(60):
        lease = server.begin()
        if is_answered:
            server.headers(lease, 0.001, is_stream=False, is_error=True)
        server.end(lease, 0.002)
    assert numbers(server.speed) == pytest.approx(before)


def test_a_long_prefill_is_a_sample_before_it_ends() -> None:
    """A slow server gets no more prompts during the prefill of its first one."""
    server = Served()
    lease = server.begin()
    server.scrape(lease, 3.0)
    once = server.first_token_s
    assert once > 2 * DEFAULT_ESTIMATE.first_token_s(PROMPT_TOKENS)


def test_foreign_tasks_are_samples_if_sizes_are_known() -> None:
    """A foreign prompt with the same number of real tokens took 8 s, within the half second in
    which it must have begun."""
    server = Served(slots=2)
    stream(server, 0.01, (5.0, 7.0), 9.0)  # 1,000 estimated tokens were 1,000 real ones
    before_s = server.first_token_s
    server.fleet.now += 100.0
    server.fleet.scrape(server.address, busy_slots=0)
    for gap_s, decoded in ((0.5, 0), (3.75, 0), (5.0, 21), (2.0, 61)):
        server.fleet.now += gap_s
        reading = SlotReading(
            task_id=77,
            cached_tokens=0,
            processed_tokens=PROMPT_TOKENS if decoded else 0,
            decoded_tokens=decoded,
        )
        server.fleet.scrape(server.address, busy_slots=1, slot_readings=(reading,))
    assert before_s + 0.5 < server.first_token_s < 8.0


def test_a_task_from_before_the_first_scrape_is_no_sample() -> None:
    """Nobody knows when it began. A picker that restarts under load finds many of these; each
    would be learned as an infinite time, and no later request could be routed."""
    server = Served()
    address = server.fleet.join()
    latency = server.fleet.dispatcher.state.latency.endpoint(address)
    latency.sized(PROMPT_TOKENS, PROMPT_TOKENS)
    for decoded in (20, 60, 100):
        server.fleet.now += 2.0
        old = SlotReading(task_id=7, processed_tokens=PROMPT_TOKENS, decoded_tokens=decoded)
        server.fleet.scrape(address, slots=2, busy_slots=1, slot_readings=(old,))
    for _ in range(3):
        latency.lease_ended(9.0)
    estimate = latency.estimate(DEFAULT_ESTIMATE)
    assert estimate.fixed_s == DEFAULT_ESTIMATE.fixed_s
    assert estimate.prefill_s == DEFAULT_ESTIMATE.prefill_s


@pytest.mark.parametrize(("headers_s", "is_trusted"), [(READING_S, True), (0.01, False)])
def test_short_answers_show_what_headers_mean_if_slots_are_hidden(
    headers_s: float, is_trusted: bool
) -> None:
    """No scrape shows slots: 4 s for 4 tokens were nearly all prefill, before the headers or after.
    Once these are trusted, long answers are learned from them, too."""
    server = Served()
    for _ in range(5):
        lease = server.begin(max_tokens=4)
        server.headers(lease, headers_s)
        server.end(lease, READING_S + 4 * TOKEN_S)
    assert server.trusts_headers is is_trusted
    assert server.first_token_s == pytest.approx(READING_S, rel=0.1)
    for _ in range(100):
        stream(server, headers_s / 2, (), 9.0)
    expected_s = READING_S / 2 if is_trusted else READING_S
    assert server.first_token_s == pytest.approx(expected_s, rel=0.1)


def test_the_real_length_of_a_prompt_shows_what_was_cached() -> None:
    """1,500 tokens of an answer are not a part of the prompt: 10 + 990 are, 99 % of it cached."""
    reading = SlotReading(
        task_id=1, prompt_tokens=2500, cached_tokens=990, processed_tokens=10, decoded_tokens=1500
    )
    assert reading.whole_prompt_tokens == 1000
    half = SlotReading(task_id=1, prompt_tokens=2048, cached_tokens=40, processed_tokens=0)
    assert half.whole_prompt_tokens is None
    assert reading.cached_share == 0.99 and half.cached_share is None


def test_a_task_shows_nothing_cached_before_its_first_batch() -> None:
    """A server says 0 of the cache then, and the prompt of the previous task."""
    begun = SlotReading(task_id=1, prompt_tokens=130, cached_tokens=0, processed_tokens=0)
    assert begun.whole_prompt_tokens is None and begun.cached_share is None
    batch = replace(begun, prompt_tokens=2048, processed_tokens=2048)
    assert batch.whole_prompt_tokens is None and batch.cached_share == 0.0


def test_a_fast_and_a_slow_server_are_distinguished_by_their_ends_alone() -> None:
    """No scrape ever saw a request: headers after 10 ms on both, ends after 0.1 and 3 s."""
    fleet = SteeredFleet()
    slow, fast = fleet.add(2), fleet.add(2)
    takes_s = {slow: 3.0, fast: 0.1}
    picked: list[Address] = []
    for _ in range(20):
        lease = fleet.pick(prompt_tokens=300, max_tokens=8)
        picked.append(lease.address)
        fleet.dispatcher.responded(lease, fleet.now + 0.01)
        fleet.now += takes_s[lease.address]
        fleet.finish(lease)
        fleet.now += 2.0
    assert picked[8:] == [fast] * 12


def test_an_untried_server_is_tried_beside_a_known_one() -> None:
    """The only known one is faster than the assumption for an unknown one. A little later it equals
    the assumption, and chance decides."""
    fleet = SteeredFleet()
    known = fleet.add(2)
    picked: list[Address] = []
    for number in range(30):
        if number == 3:
            fleet.add(2)
        lease = fleet.pick(prompt_tokens=300)
        picked.append(lease.address)
        fleet.dispatcher.responded(lease, fleet.now + 0.01)
        fleet.now += 0.8
        fleet.finish(lease)
    assert picked[:3] == [known] * 3
    assert len(set(picked[3:])) == 2


def test_headers_that_scrapes_contradict_are_no_samples() -> None:
    """No scrape saw the prefill: the tokens, traced back, show 4 s, and the headers came after 10
    ms."""
    server = Served()
    for _ in range(10):
        stream(server, 0.01, (5.0, 7.0), 9.0)
    assert not server.trusts_headers
    assert server.first_token_s == pytest.approx(READING_S, rel=0.1)


def test_embeddings_show_the_prefill_time_of_a_token() -> None:
    """4 ms for each, and nothing besides: 250 tokens in 1 s, 1,000 in 4 s."""
    server = Served()
    fleet = server.fleet
    for number in range(60):
        tokens = 250 if number % 2 else 1000
        lease = fleet.pick(prompt_tokens=tokens, kind=Kind.EMBEDDING)
        fleet.now += 0.004 * tokens
        fleet.dispatcher.responded(lease, fleet.now, is_stream=False)
        fleet.finish(lease)
    assert server.speed.first_token_s(250) == pytest.approx(1.0, rel=0.1)
    assert server.speed.first_token_s(1000) == pytest.approx(4.0, rel=0.1)


def with_images(fleet: SteeredFleet, every: int, image_tokens: int | None) -> None:
    """A hundred requests, one at a time: texts have a prefill of 1 ms a token, and one in `every`
    is an image that is estimated at `image_tokens`, and takes 1.5 s."""
    for number in range(100):
        tokens: int | None = 400 + 37 * (number % 60)
        takes_s = 0.001 * (tokens or 0)
        if not number % every:
            tokens, takes_s = image_tokens, 1.5
        lease = fleet.pick(prompt_tokens=tokens, prompt_blocks=(-number,), max_tokens=1)
        fleet.now += takes_s
        fleet.dispatcher.responded(lease, fleet.now, is_stream=False)
        fleet.finish(lease)


@pytest.mark.parametrize(
    ("context_tokens", "image_tokens"),
    [(None, None), (4096, None), (4096, 250_000), (131_072, 6_250_000)],
)
@pytest.mark.parametrize("every", [10, 2])
def test_images_are_no_samples(
    context_tokens: int | None, image_tokens: int | None, every: int
) -> None:
    """Neither if they are known to be images, nor if only the length of a body was known and no
    server could hold that much text."""
    server = Served()
    server.fleet.scrape(server.address, slots=1, busy_slots=0, context_tokens=context_tokens)
    with_images(server.fleet, every, image_tokens)
    assert server.speed.prefill_s == pytest.approx(0.001, rel=0.1)
    assert server.speed.fixed_s < 0.05


def test_an_image_with_a_long_prefill_is_no_sample_either() -> None:
    """Scrapes see it: no token after a multiple of the time for text of its length."""
    server = Served()
    before = server.speed
    server.task += 1
    lease = server.fleet.pick(prompt_blocks=(1,))
    for after_s in (1.0, 2.0, 3.0, 5.0, 7.0):
        server.scrape(lease, after_s)
    server.end(lease, 9.0)
    assert server.speed.first_token_s(1000) == before.first_token_s(1000)


LOADED = (ModelReading(name="old", slots=2, busy_slots=0),)


class Router:
    """One endpoint with the models `old` and `new`, two slots each, of which the first has served a
    hundred requests and the second none."""

    def __init__(self) -> None:
        self.fleet = SteeredFleet()
        self.address = self.fleet.add(4, models=self.models(0, 0))
        self.chain = tuple(range(40))

    def models(self, old: int, new: int) -> list[ModelReading]:
        return [
            ModelReading(name=name, slots=2, busy_slots=busy)
            for name, busy in (("old", old), ("new", new))
        ]

    def begin(self, model: str) -> Lease:
        self.fleet.now += 1.0
        chain = tuple(ord(model[0]) + 1000 * block for block in self.chain)
        return self.fleet.pick(model=model, prompt_blocks=chain, prompt_tokens=2600)

    def scrape(self, *readings: SlotReading) -> None:
        old, new = (sum(one.model == name for one in readings) for name in ("old", "new"))
        self.fleet.scrape(
            self.address,
            slots=4,
            busy_slots=len(readings),
            models=self.models(old, new),
            slot_readings=readings,
            context_tokens=8192,
        )

    def end(self, lease: Lease) -> None:
        self.fleet.dispatcher.responded(lease, self.fleet.now)
        self.fleet.finish(lease)


def task(number: int, model: str, decoded: int, cached: int = 0) -> SlotReading:
    return SlotReading(
        task_id=number,
        prompt_tokens=2600 + decoded,
        cached_tokens=cached,
        processed_tokens=2600 - cached,
        decoded_tokens=decoded,
        remaining_tokens=1000 - decoded,
        model=model,
    )


def test_tasks_of_a_router_are_distinguished_by_their_models() -> None:
    """Each model numbers its own: the first of one comes after the hundredth of the other."""
    router = Router()
    leases = {model: router.begin(model) for model in ("old", "new")}
    router.fleet.now += 1.0
    router.scrape(task(100, "old", 20), task(0, "new", 500))
    runs = {
        model: router.fleet.dispatcher.state.in_flight.get(lease) for model, lease in leases.items()
    }
    seen = {
        model: run.progress and run.progress.last_token[1] for model, run in runs.items() if run
    }
    assert seen == {"old": 20, "new": 500}


def test_foreign_tasks_of_one_model_do_not_hide_our_tasks_of_another() -> None:
    router = Router()
    lease = router.begin("new")
    router.fleet.now += 1.0
    router.scrape(task(100, "old", 20), task(0, "new", 500))
    run = router.fleet.dispatcher.state.in_flight.get(lease)
    assert run is not None and run.progress is not None and run.progress.last_token[1] == 500


@pytest.mark.parametrize(
    "reported",
    [
        {"models": [ModelReading(name="new", is_loaded=False)], "status": ScrapeStatus.ASLEEP},
        {"models": [*LOADED, ModelReading(name="new", is_loaded=False)]},
        {"models": ["new"], "status": ScrapeStatus.ASLEEP},
    ],
)
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_model_load_is_no_slow_prefill(reported: dict[str, Any], is_seen: bool) -> None:
    """Most of the 30 s until the first token had passed before the prefill began."""
    fleet = SteeredFleet()
    address = fleet.add(1, **reported)
    is_router = len(reported["models"]) > 1 or reported["models"] != ["new"]
    awake = [ModelReading(name="new", slots=1, busy_slots=1)] if is_router else ["new"]
    before = fleet.dispatcher.state.latency.estimate(address, fleet.now)
    lease = fleet.pick(model="new", prompt_tokens=PROMPT_TOKENS, max_tokens=200)
    fleet.now += 30.0
    for decoded in (1, 100, 199):
        fleet.now += 3.0
        reading = task(0, "new" if is_router else "", decoded)
        if is_seen:
            fleet.scrape(address, slots=1, busy_slots=1, models=awake, slot_readings=(reading,))
    fleet.dispatcher.responded(lease, fleet.now, is_stream=False)
    fleet.finish(lease)
    fleet.now += 5.0
    after = fleet.dispatcher.state.latency.estimate(address, fleet.now)
    assert (after.fixed_s, after.prefill_s) == (before.fixed_s, before.prefill_s)


def test_routers_are_learned_from_like_plain_servers() -> None:
    """Rate, lengths of answers, when a slot is free at the latest, and how much is cached."""
    router = Router()
    for number in range(10):
        lease = router.begin("old")
        for decoded in (10, 110):
            router.fleet.now += 10.0
            router.scrape(task(number, "old", decoded))
        run = router.fleet.dispatcher.state.in_flight.get(lease)
        assert run is not None and run.ends_by < router.fleet.now + 100.0
        router.end(lease)
        router.fleet.now += 1.0
        router.scrape()
    router.fleet.now += 5.0
    speed = router.fleet.dispatcher.state.latency.estimate(router.address, router.fleet.now)
    assert speed.token_s(1) == pytest.approx(0.1, rel=0.1)
    assert speed.answer_tokens < 180.0
    memory = router.fleet.dispatcher.state.prefix_caches.memory(router.address)
    assert memory is not None
    assert memory.capacity < 4 * 8192 / BLOCK_TOKENS, "nothing was ever found there"


def test_a_prompt_of_unknown_length_shows_its_first_token_alone() -> None:
    """Servers differ in what their slots show."""
    server = Served()
    lease = server.begin()
    for after_s in (0.25, READING_S + 1.0, READING_S + 2.0):
        server.fleet.now = lease.opened_at + after_s
        decoded = max(0, round((after_s - READING_S) / TOKEN_S))
        reading = SlotReading(task_id=1, decoded_tokens=decoded)
        server.fleet.scrape(server.address, busy_slots=1, slot_readings=(reading,))
    latency = server.fleet.dispatcher.state.latency.endpoint(server.address)
    assert latency.tokens_per_estimate is None
    assert DEFAULT_ESTIMATE.first_token_s(PROMPT_TOKENS) < server.first_token_s <= READING_S


def test_a_foreign_task_that_may_have_begun_at_any_time_is_no_sample() -> None:
    """A minute passed between the scrape without it and the first with it."""
    server = Served(slots=2)
    stream(server, 0.01, (5.0, 7.0), 9.0)
    server.fleet.now += 100.0
    server.fleet.scrape(server.address, busy_slots=0)
    before = server.speed
    for gap_s, decoded in ((60.0, 20), (2.0, 60)):
        server.fleet.now += gap_s
        reading = SlotReading(
            task_id=77,
            cached_tokens=0,
            processed_tokens=PROMPT_TOKENS,
            decoded_tokens=decoded,
        )
        server.fleet.scrape(server.address, busy_slots=1, slot_readings=(reading,))
    after = server.speed
    assert (after.fixed_s, after.prefill_s) == (before.fixed_s, before.prefill_s)


def test_a_cache_that_is_forgotten_meanwhile_is_not_corrected() -> None:
    """The server was started again while it read the prompt."""
    fleet, chain = SteeredFleet(), tuple(range(40))
    address = fleet.add(1, context_tokens=8192)
    asked: dict[str, Any] = {"prompt_blocks": chain, "prompt_tokens": 2600}
    lease = fleet.pick(**asked)
    fleet.dispatcher.responded(lease, fleet.now)
    fleet.finish(lease)
    fleet.scrape(address, slots=1, busy_slots=0)
    again = fleet.pick(**asked)
    state = fleet.dispatcher.state
    run = state.in_flight.get(again)
    assert run is not None and run.remembered
    state.prefix_caches.forget(address)
    fleet.now += 1.0
    reading = SlotReading(
        task_id=1, prompt_tokens=2601, cached_tokens=0, processed_tokens=2600, decoded_tokens=1
    )
    fleet.scrape(address, slots=1, busy_slots=1, slot_readings=(reading,))
    assert run.remembered == () and state.prefix_caches.memory(address) is None


def test_a_slot_that_does_not_say_what_it_processed_shows_no_length() -> None:
    """What it holds may be a part of the prompt."""
    fleet = SteeredFleet()
    address = fleet.add(1, models=["m"])
    lease = fleet.pick(prompt_tokens=2600, prompt_chars=4 * 2600)
    run = fleet.dispatcher.state.in_flight.get(lease)
    assert run is not None
    for processed, is_sized in ((None, False), (1300, True)):
        fleet.now += 1.0
        reading = SlotReading(
            task_id=1,
            prompt_tokens=1300,
            cached_tokens=0,
            processed_tokens=processed,
            decoded_tokens=1,
        )
        fleet.scrape(address, slots=1, busy_slots=1, models=["m"], slot_readings=(reading,))
        assert run.is_prompt_sized is is_sized


def test_the_headers_of_an_endpoint_that_is_gone_teach_no_cache() -> None:
    """The session's endpoint is remembered; that it is gone is found when it is looked for."""
    fleet = SteeredFleet()
    address = fleet.add(1)
    lease = fleet.pick(prompt_blocks=(1, 2), prompt_tokens=200, session_id="s")
    state = fleet.dispatcher.state
    state.fleet.set_members("test", [])
    state.fleet.drop(address)
    fleet.dispatcher.responded(lease, fleet.now)
    assert state.prefix_caches.memory(address) is None
    assert state.sessions.last_endpoint("s") == address
