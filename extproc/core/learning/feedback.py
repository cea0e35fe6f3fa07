"""Updates the latency model and the prefix cache model from requests and observations.

The time of a first token comes from the best source that is available:

    scrapes   they saw tokens of the response: computed back from these (see
              `generation_progress`)
    headers   of a stream, at a server whose headers were found to come with first tokens. Some
              builds send them when the prefill begins: those headers are ignored
    the end   if little can have happened between what is known and the end; otherwise, if the
              expectation was outside of what is possible, only the bound that it violated.
              The headers of a response that is no stream are its end
    prefill   a scrape that sees no token after twice the expected time: later than that

Error responses and requests without a response are no samples. Neither are first tokens that waited
for a model to be loaded: what these took longer than expected is what the load took.

A sample counts the tokens that were expected to be processed, not those that were: an expectation
that is regularly wrong (it cannot know that a server also caches its own last response) is thus
compensated by the estimate that is learned with it.
"""

from math import inf

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.model_names import ModelNames
from extproc.core.learner import Learner
from extproc.core.learning.in_flight import InFlight, InFlightRequest
from extproc.core.learning.slo import SloEvaluation
from extproc.core.learning.ttft import NARROW, TtftBounds, at_end, expected_at, so_far
from extproc.core.observation import Observation, SlotReading
from extproc.core.prediction.generation_progress import GenerationProgress
from extproc.core.prediction.latency import (
    EndpointLatency,
    LatencyEstimate,
    LatencyModel,
    Task,
    task_of,
)
from extproc.core.prediction.prefix_cache import PrefixIndex
from extproc.core.prediction.prompt_sizes import PromptSizes
from extproc.core.prediction.sessions import Sessions
from extproc.core.prompt_blocks import BLOCK_TOKENS, CHARS_PER_TOKEN
from extproc.core.request import Kind
from extproc.core.selection.cost import CostModel
from extproc.core.slots.lease import Lease
from extproc.core.slots.ledger import Ledger
from extproc.core.slots.model_loading import ModelLoadTracker

DEFAULT_CONTEXT_TOKENS = 4096
LATE = 2.0
"""A prompt that is in prefill after this multiple of the expected seconds is a sample."""
ROUGH = 2.0
"""By this factor a text may have fewer tokens than were estimated. A prompt that exceeds the
server's context even so, and got a response, was not text but, for example, an image."""

Runs = dict[Task, tuple[Lease, InFlightRequest]]
"""The requests whose tasks are known."""


class Feedback(Learner):
    """Updates the latency model, the prefix cache model, sessions and lengths of prompts."""

    def __init__(
        self,
        fleet: Fleet,
        names: ModelNames,
        ledger: Ledger,
        in_flight: InFlight,
        slo: SloEvaluation,
        latency: LatencyModel,
        prefix_caches: PrefixIndex,
        sessions: Sessions,
        prompt_sizes: PromptSizes,
        costs: CostModel,
        model_loads: ModelLoadTracker,
    ) -> None:
        self._fleet = fleet
        self._names = names
        self._ledger = ledger
        self._in_flight = in_flight
        self._slo = slo
        self._latency = latency
        self._prefix_caches = prefix_caches
        self._sessions = sessions
        self._prompt_sizes = prompt_sizes
        self._costs = costs
        self._model_loads = model_loads

    def moved(self, lease_id: int, _picked: Address, served: Address, _now: float) -> None:
        """What is expected of a request is expected of the server that has it."""
        run = self._in_flight.by_id(lease_id)
        if run is not None:
            self.record_prediction(run, served)

    def record_prediction(self, run: InFlightRequest, address: Address) -> None:
        """Record what is expected of a request where it runs, if its prompt was read."""
        request = run.request
        if request.prompt_tokens is None and not request.prompt_blocks:
            return
        run.is_valid_sample = self._is_credible(address, request.prompt_tokens)
        run.cached_tokens = self._costs.cached_tokens(request, address)
        run.remembered = ()
        memory = self._prefix_caches.memory(address) if request.prompt_blocks else None
        if memory is not None:
            depth = memory.depth(request.prompt_blocks)
            run.remembered = memory.segments(request.prompt_blocks, depth)

    def _is_credible(self, address: Address, prompt_tokens: int | None) -> bool:
        """Whether a prompt may be as long as it was estimated to be."""
        if prompt_tokens is None:
            return False
        endpoint = self._fleet.get(address)
        context = None if endpoint is None else endpoint.context_tokens
        return context is None or prompt_tokens <= ROUGH * context

    def on_response_headers(self, lease: Lease, run: InFlightRequest, now: float) -> None:
        """The headers of a response without an error came."""
        request, address = run.request, lease.address
        if run.is_cold:
            cost = self._costs.cost(request, address, 0, now)
            own_s = cost.first_token_s + (0.0 if run.is_stream else cost.answer_s)
            self._model_loads.answered(lease, now - lease.opened_at - own_s)
        if request.kind is not Kind.GENERATION:
            return
        latency = self._latency.endpoint(address)
        if run.is_stream and latency.trusts_headers:
            _record_sample(latency, run, now - lease.opened_at)
        if request.prompt_blocks:
            endpoint = self._fleet.get(address)
            if endpoint is not None:
                slots = self._ledger.endpoint_slots(address).slots
                context = endpoint.context_tokens or DEFAULT_CONTEXT_TOKENS
                self._prefix_caches.learn(
                    address, request.prompt_blocks, slots * context / BLOCK_TOKENS
                )
        if request.session_id is not None:
            self._sessions.served(request.session_id, address, request.prompt_tokens)

    def on_completion(
        self, lease: Lease, run: InFlightRequest, now: float, bounds: TtftBounds | None = None
    ) -> None:
        """A request was served to its end. `bounds` is the result of `evaluate_end`."""
        answered_at = run.answered_at
        if answered_at is None or run.is_error:
            return
        latency = self._latency.endpoint(lease.address)
        latency.lease_ended(now - lease.opened_at)
        if not run.is_valid_sample or lease.weight_slots > 1 or not latency.wants_end(now):
            return
        estimate = self._latency.estimate(lease.address, now)
        if bounds is None:
            bounds = at_end(lease, run, latency, estimate, now if run.is_stream else answered_at)
        first_s = bounds.likely_at - lease.opened_at
        if run.progress is not None and run.progress.has_token:
            if latency.knows_pace:
                _record_first_token(latency, lease, run, run.progress, estimate)
        elif bounds.is_narrow(lease.opened_at):
            # No scrape saw a token: it came between the last scrape, or the headers, and the end.
            _record_header_timing(
                latency, lease, run, estimate, first_s, bounds.latest_at - bounds.earliest_at
            )
            _record_sample(latency, run, first_s)
        elif not bounds.earliest_at <= expected_at(lease, run, estimate) <= bounds.latest_at:
            _record_sample(latency, run, first_s)

    def on_observation(self, endpoint: Endpoint, observation: Observation, runs: Runs) -> None:
        """Record what the busy slots show: token rate, first tokens, the tokens really cached."""
        readings = observation.slot_readings
        address = endpoint.address
        latency = self._latency.endpoint(address)
        began_at, answered_at = observation.began_at, observation.answered_at
        tasks = latency.observe_slots(readings, len(readings), began_at, answered_at)
        if not readings:
            return
        estimate = self._latency.estimate(address, answered_at)
        for reading in readings:
            progress = tasks.get(task_of(reading))
            lease, run = runs.get(task_of(reading), (None, None))
            if run is not None and lease is not None:
                self._record_cache(address, run, reading)
                self._record_prompt_size(endpoint, lease, run, reading)
                if reading.decoded_tokens and reading.remaining_tokens is not None:
                    left_s = reading.remaining_tokens * estimate.token_s(len(readings))
                    run.ends_by = answered_at + left_s
                if progress is not None:
                    run.progress = lease.progress = progress
                    _record_progress(latency, lease, run, progress, estimate)
                    self._slo.evaluate_observation(lease, run, estimate, answered_at)
            elif progress is not None and not progress.is_recorded:
                _record_foreign_task(latency, progress, estimate)

    def runs_of(self, endpoint: Endpoint, observation: Observation) -> Runs:
        """The request of each task, in each model pool in which all tasks are ours."""
        endpoint_slots = self._ledger.endpoint_slots(endpoint.address)
        by_model: dict[str, list[SlotReading]] = {}
        for reading in observation.slot_readings:
            by_model.setdefault(reading.model, []).append(reading)
        found: Runs = {}
        for model, readings in by_model.items():
            pool = endpoint_slots.pool(model)
            if pool.foreign_slots or len(readings) != len(pool.leases):
                continue
            if not pool.was_constant(observation):
                continue  # one of them may be the task of a lease that has ended
            # All are ours: a process numbers its tasks in the order in which it begins them.
            leases = sorted(pool.leases.values(), key=lambda lease: (lease.opened_at, lease.id))
            for lease, reading in zip(leases, sorted(readings, key=task_of), strict=True):
                if lease.weight_slots == 1 and lease.opened_at < observation.began_at:
                    run = self._in_flight.get(lease)
                    if run is not None:
                        found[task_of(reading)] = (lease, run)
        return found

    def _record_cache(self, address: Address, run: InFlightRequest, reading: SlotReading) -> None:
        found_share = reading.cached_share
        if not run.remembered or found_share is None or not run.is_valid_sample:
            return
        memory = self._prefix_caches.memory(address)
        if memory is not None:
            # A share, because the server counts tokens differently.
            found_blocks = found_share * run.request.likely_tokens / BLOCK_TOKENS
            is_learned = run.answered_at is not None
            chain = run.request.prompt_blocks
            memory.correct(chain, run.remembered, found_blocks, is_learned=is_learned)
        run.remembered = ()  # once for each request

    def _record_prompt_size(
        self, endpoint: Endpoint, lease: Lease, run: InFlightRequest, reading: SlotReading
    ) -> None:
        """A scrape shows the real length of a prompt whose text was read completely."""
        real_tokens, estimated = reading.whole_prompt_tokens, run.request.prompt_tokens
        if not real_tokens or run.is_prompt_sized or estimated is None:
            return
        if reading.processed_tokens is None or reading.cached_tokens is None:
            return  # what the slot holds may be a part of the prompt, or a part of the response
        if estimated != run.request.prompt_chars // CHARS_PER_TOKEN:
            return
        run.is_prompt_sized = True
        model = lease.model or (endpoint.models[0].name if len(endpoint.models) == 1 else "")
        name = self._names.catalog.canonical_name(model) if model else ""
        self._prompt_sizes.record(name, real_tokens, estimated)


def _record_progress(
    latency: EndpointLatency,
    lease: Lease,
    run: InFlightRequest,
    progress: GenerationProgress,
    estimate: LatencyEstimate,
) -> None:
    """A scrape showed one of our own requests."""
    if not progress.has_token:
        answered_at = run.answered_at
        is_early = answered_at is not None and progress.prefill_until > answered_at
        if is_early and run.is_stream and not run.is_header_timing_recorded:
            run.is_header_timing_recorded = True
            # Its headers came, and still no token.
            latency.record_header_timing(is_first_token=False)
        so_far_s = progress.prefill_until - lease.opened_at
        if run.is_valid_sample and so_far_s > LATE * estimate.first_token_s(run.uncached_tokens):
            latency.answered(run.uncached_tokens, so_far_s)
        return
    first = progress.first_token(estimate.token_s(1))
    if first is not None and first.is_own_pace:
        _record_first_token(latency, lease, run, progress, estimate)


def _record_first_token(
    latency: EndpointLatency,
    lease: Lease,
    run: InFlightRequest,
    progress: GenerationProgress,
    estimate: LatencyEstimate,
) -> None:
    """Scrapes saw tokens of the response: so the time of the first and the prefill are known."""
    first = progress.first_token(estimate.token_s(1))
    if first is None or progress.is_recorded or not run.is_valid_sample:
        return
    progress.is_recorded = True
    if progress.whole_prompt_tokens:
        latency.sized(progress.whole_prompt_tokens, run.request.likely_tokens)
    first_s = so_far(lease, run, estimate).likely_at - lease.opened_at
    _record_header_timing(latency, lease, run, estimate, first_s, first.slack_s)
    _record_sample(latency, run, first_s)


def _record_foreign_task(
    latency: EndpointLatency, progress: GenerationProgress, estimate: LatencyEstimate
) -> None:
    """A task that cannot be matched to one of our requests: it began between two scrapes."""
    first, per_estimate = progress.first_token(estimate.token_s(1)), latency.tokens_per_estimate
    if first is None or not first.is_own_pace or per_estimate is None:
        return
    if progress.unseen_until == -inf:  # it was there before our first scrape
        return
    progress.is_recorded = True
    shortest_s, longest_s = first.at - progress.prefill_since, first.at - progress.unseen_until
    if progress.processed_tokens and longest_s - shortest_s <= NARROW * longest_s:
        uncached_tokens = progress.processed_tokens / per_estimate
        latency.answered(uncached_tokens, (shortest_s + longest_s) / 2)


def _record_header_timing(
    latency: EndpointLatency,
    lease: Lease,
    run: InFlightRequest,
    estimate: LatencyEstimate,
    first_s: float,
    slack_s: float,
) -> None:
    """Record whether a stream's headers came with its first token. Only a prompt whose prefill took
    much longer than `slack_s`, the error of `first_s`, shows it."""
    if not run.is_stream or run.answered_at is None or run.is_header_timing_recorded:
        return
    prefill_s = min(first_s, estimate.prefill_s * run.uncached_tokens)
    if prefill_s > 2.0 * slack_s:
        run.is_header_timing_recorded = True
        headers_s = run.answered_at - lease.opened_at
        latency.record_header_timing(is_first_token=headers_s > first_s - prefill_s / 2)


def _record_sample(latency: EndpointLatency, run: InFlightRequest, first_s: float) -> None:
    """Record the time to first token, once for each request."""
    if run.is_valid_sample and not run.is_sampled:
        run.is_sampled = True
        latency.answered(run.uncached_tokens, first_s)
