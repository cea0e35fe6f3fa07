"""What the course of each request and each look teach about speeds and caches.

When a first token came, in the order in which it is believed:

    looks     they saw the answer's tokens: going back from those (see `generation_progress`)
    headers   of a stream, at a server whose headers were found to come with first tokens. Some
              builds send them when they begin to read: those headers teach nothing
    the end   when little can have happened between what is known and the end; otherwise, where
              the expectation was outside of what is possible, only the bound that it broke.
              The headers of an answer that is no stream are its end
    reading   a look that still sees no token after twice the expected time: later than that

Answers with an error teach nothing, and neither do requests that got no answer. First tokens that
waited for a model to be loaded teach nothing of speeds and caches.

The tokens that a lesson counts are those that were expected to be read, not those that really
were: an expectation that is regularly wrong (it cannot know that a server also holds its own last
answer) is thus made good by the speed that goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.prediction.latency import task_of
from extproc.core.prompt_blocks import BLOCK_TOKENS
from extproc.core.request import Kind
from extproc.core.scheduler.slo import evaluate_observation
from extproc.core.scheduler.ttft import NARROW, at_end, expected_at, so_far

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.observation import Observation, SlotReading
    from extproc.core.prediction.generation_progress import GenerationProgress
    from extproc.core.prediction.latency import EndpointLatency, LatencyEstimate, Task
    from extproc.core.scheduler.in_flight import InFlightRequest
    from extproc.core.scheduler.state import State
    from extproc.core.scheduler.ttft import TtftBounds
    from extproc.core.slots.lease import Lease

DEFAULT_CONTEXT_TOKENS = 4096
LATE = 2.0
"""A prompt that is still being read after so many times the expected seconds is a lesson."""
ROUGH = 2.0
"""A text may have so many times fewer tokens than were estimated. What is beyond the server's
context even so and was answered held no text but, say, an image that nobody read so far."""


def record_prediction(state: State, run: InFlightRequest, address: Address) -> None:
    """Note what is expected of a request where it runs, if anything of it was read."""
    request = run.request
    if request.prompt_tokens is None and not request.prompt_blocks:
        return
    run.is_valid_sample = _is_credible(state, address, request.prompt_tokens)
    run.cached_tokens = state.costs.cached_tokens(request, address)
    run.remembered = ()
    memory = state.prefix_caches.memory(address) if request.prompt_blocks else None
    if memory is not None:
        depth = memory.depth(request.prompt_blocks)
        run.remembered = memory.segments(request.prompt_blocks, depth)


def _is_credible(state: State, address: Address, prompt_tokens: int | None) -> bool:
    """Whether a prompt may be as long as it was estimated to be."""
    if prompt_tokens is None:
        return False
    endpoint = state.fleet.get(address)
    context = None if endpoint is None else endpoint.context_tokens
    return context is None or prompt_tokens <= ROUGH * context


def on_response_headers(state: State, lease: Lease, run: InFlightRequest, now: float) -> None:
    """The headers of an answer without an error came."""
    request, address = run.request, lease.address
    if request.kind is not Kind.GENERATION:
        return
    watch = state.latency.endpoint(address)
    if run.is_stream and watch.trusts_headers:
        _record_sample(watch, run, now - lease.opened_at)
    if request.prompt_blocks:
        endpoint = state.fleet.get(address)
        if endpoint is not None:
            slots = state.ledger.endpoint_slots(address).slots
            context = endpoint.context_tokens or DEFAULT_CONTEXT_TOKENS
            state.prefix_caches.learn(
                address, request.prompt_blocks, slots * context / BLOCK_TOKENS
            )
    if request.session_id is not None:
        state.sessions.served(request.session_id, address, request.prompt_tokens)


def on_completion(
    state: State, lease: Lease, run: InFlightRequest, now: float, window: TtftBounds | None = None
) -> None:
    """A request was served to its end. `window` is what `judge_end` worked out of it."""
    answered_at = run.answered_at
    if answered_at is None or run.is_error:
        return
    watch = state.latency.endpoint(lease.address)
    watch.ended(now - lease.opened_at)
    if not run.is_valid_sample or lease.weight_slots > 1 or not watch.wants_end(now):
        return
    speed = state.latency.estimate(lease.address, now)
    if window is None:
        window = at_end(lease, run, watch, speed, now if run.is_stream else answered_at)
    first_s = window.likely_at - lease.opened_at
    if run.progress is not None and run.progress.has_token:
        if watch.knows_pace:
            _record_first_token(watch, lease, run, run.progress, speed)
    elif window.is_narrow(lease.opened_at):
        # Nobody saw a token: it came between the last look, or the headers, and the end.
        _record_header_timing(
            watch, lease, run, speed, first_s, window.latest_at - window.earliest_at
        )
        _record_sample(watch, run, first_s)
    elif not window.earliest_at <= expected_at(lease, run, speed) <= window.latest_at:
        _record_sample(watch, run, first_s)


def on_observation(state: State, endpoint: Endpoint, observation: Observation) -> None:
    """What the busy slots show: the pace of tokens, first tokens, and what was really cached."""
    readings = observation.slot_readings
    address = endpoint.address
    watch = state.latency.endpoint(address)
    began_at, answered_at = observation.began_at, observation.answered_at
    courses = watch.looked(readings, len(readings), began_at, answered_at)
    if not readings:
        return
    speed = state.latency.estimate(address, answered_at)
    runs = _runs_of(state, endpoint, observation)
    for reading in readings:
        course = courses.get(task_of(reading))
        lease, run = runs.get(task_of(reading), (None, None))
        if run is not None and lease is not None:
            _record_cache(state, address, run, reading)
            if reading.decoded_tokens and reading.remaining_tokens is not None:
                left_s = reading.remaining_tokens * speed.token_s(len(readings))
                run.ends_by = answered_at + left_s
            if course is not None:
                run.progress = course
                _record_progress(watch, lease, run, course, speed)
                evaluate_observation(state, lease, run, speed, answered_at)
        elif course is not None and not course.has_taught:
            _record_foreign_task(watch, course, speed)


def _runs_of(
    state: State, endpoint: Endpoint, observation: Observation
) -> dict[Task, tuple[Lease, InFlightRequest]]:
    """Whose task is which, in each room where all of them are ours."""
    endpoint_slots = state.ledger.endpoint_slots(endpoint.address)
    by_model: dict[str, list[SlotReading]] = {}
    for reading in observation.slot_readings:
        by_model.setdefault(reading.model, []).append(reading)
    found: dict[Task, tuple[Lease, InFlightRequest]] = {}
    for model, readings in by_model.items():
        pool = endpoint_slots.pool(model)
        if pool.foreign_slots or len(readings) != len(pool.leases):
            continue
        # All of it is ours: tasks are numbered in the order in which the process began them.
        leases = sorted(pool.leases.values(), key=lambda lease: (lease.opened_at, lease.id))
        for lease, reading in zip(leases, sorted(readings, key=_task_id), strict=True):
            if lease.weight_slots == 1 and lease.opened_at < observation.began_at:
                run = state.in_flight.get(lease)
                if run is not None:
                    found[task_of(reading)] = (lease, run)
    return found


def _record_progress(
    watch: EndpointLatency,
    lease: Lease,
    run: InFlightRequest,
    course: GenerationProgress,
    speed: LatencyEstimate,
) -> None:
    """One of our own requests was looked at."""
    if not course.has_token:
        answered_at = run.answered_at
        is_early = answered_at is not None and course.reading_until > answered_at
        if is_early and run.is_stream and not run.is_header_timing_recorded:
            run.is_header_timing_recorded = True
            watch.judged(is_first_token=False)  # its headers came, and still no token
        so_far_s = course.reading_until - lease.opened_at
        if run.is_valid_sample and so_far_s > LATE * speed.first_token_s(run.uncached_tokens):
            watch.answered(run.uncached_tokens, so_far_s)
        return
    first = course.first_token(speed.token_s(1))
    if first is not None and first.is_own_pace:
        _record_first_token(watch, lease, run, course, speed)


def _record_first_token(
    watch: EndpointLatency,
    lease: Lease,
    run: InFlightRequest,
    course: GenerationProgress,
    speed: LatencyEstimate,
) -> None:
    """Looks saw the answer's tokens: so its first one is known, and how much was read."""
    first = course.first_token(speed.token_s(1))
    if first is None or course.has_taught or not run.is_valid_sample:
        return
    course.has_taught = True
    if course.whole_prompt_tokens:
        watch.sized(course.whole_prompt_tokens, run.request.likely_tokens)
    first_s = so_far(lease, run, speed).likely_at - lease.opened_at
    _record_header_timing(watch, lease, run, speed, first_s, first.slack_s)
    _record_sample(watch, run, first_s)


def _record_foreign_task(
    watch: EndpointLatency, course: GenerationProgress, speed: LatencyEstimate
) -> None:
    """A task that cannot be told to be one of ours: it began between two looks."""
    first, per_estimate = course.first_token(speed.token_s(1)), watch.tokens_per_estimate
    if first is None or not first.is_own_pace or per_estimate is None:
        return
    course.has_taught = True
    shortest_s, longest_s = first.at - course.reading_since, first.at - course.unseen_until
    if course.processed_tokens and longest_s - shortest_s <= NARROW * longest_s:
        fresh_tokens = course.processed_tokens / per_estimate
        watch.answered(fresh_tokens, (shortest_s + longest_s) / 2)


def _record_header_timing(
    watch: EndpointLatency,
    lease: Lease,
    run: InFlightRequest,
    speed: LatencyEstimate,
    first_s: float,
    slack_s: float,
) -> None:
    """Whether a stream's headers came with its first token. Only a prompt that took much longer
    to read than `slack_s`, the error of `first_s`, can tell."""
    if not run.is_stream or run.answered_at is None or run.is_header_timing_recorded:
        return
    reading_s = min(first_s, speed.prefill_s * run.uncached_tokens)
    if reading_s > 2.0 * slack_s:
        run.is_header_timing_recorded = True
        headers_s = run.answered_at - lease.opened_at
        watch.judged(is_first_token=headers_s > first_s - reading_s / 2)


def _record_sample(watch: EndpointLatency, run: InFlightRequest, first_s: float) -> None:
    """Once for each request."""
    if run.is_valid_sample and not run.is_sampled:
        run.is_sampled = True
        watch.answered(run.uncached_tokens, first_s)


def _record_cache(
    state: State, address: Address, run: InFlightRequest, reading: SlotReading
) -> None:
    real_tokens = reading.whole_prompt_tokens
    if not run.remembered or not real_tokens or not run.is_valid_sample:
        return
    if reading.cached_tokens is None:
        return
    memory = state.prefix_caches.memory(address)
    if memory is not None:
        found_share = reading.cached_tokens / real_tokens  # its tokens are not ours
        found_blocks = found_share * run.request.likely_tokens / BLOCK_TOKENS
        is_learned = run.answered_at is not None
        chain = run.request.prompt_blocks
        memory.correct(chain, run.remembered, found_blocks, is_learned=is_learned)
    run.remembered = ()  # once for each request


def _task_id(reading: SlotReading) -> int:
    return reading.task_id
