"""The latency model: how fast each endpoint is, learned from traffic, and what a request costs.

    first token after  fixed_s + prefill_s * uncached tokens
    then each token    decode_s + decode_slope_s * busy slots
    slot in use for    the sum, with the answer lengths that were seen

An endpoint with few samples is assumed to be like the fleet's median one. All samples decay, so a
server that became slow is known to be slow after some tens of requests. `feedback` decides which
samples are valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from statistics import median

from extproc.core.address import Address
from extproc.core.learner import Learner
from extproc.core.observation import SlotReading
from extproc.core.prediction.generation_progress import GenerationProgress
from extproc.core.prediction.statistics import DecayingMean, RobustLinearFit

MAX_ENDS_A_SECOND = 50
LEAST_MEASURED = 3.0
"""With this weight of samples an endpoint's own rates are known."""
SURE_OF_PACE = 30.0
"""With fewer samples of its token rate it may have been measured while the machine stood still."""
SLOWER = 1.01
"""By which a sample forgets how quick a server was at best."""
BURST_SCRAPES = 15
"""Scrapes at once after a request began where the token rate is not known: about half a second in
which an answer that is shorter than usual intervals is seen twice."""
MAX_TASKS = 1024
"""Slots whose progress is remembered between scrapes, for each endpoint."""
TRUSTED_SHARE = 0.7
"""The share of observed streams whose headers must have come with their first token, before
headers count as first tokens."""


def refresh_s(endpoints: int) -> float:
    """How long a value whose computation is O(endpoints) is used: it changes slowly, and its
    computation must remain a small part of each second."""
    return max(1.0, endpoints / 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyEstimate:
    """The estimates for one endpoint, all in seconds but `answer_tokens`."""

    fixed_s: float
    prefill_s: float
    decode_s: float
    decode_slope_s: float
    answer_tokens: float
    slot_s: float

    def first_token_s(self, uncached_tokens: float) -> float:
        """Seconds to the first token, with this number of tokens that are not cached."""
        return self.fixed_s + self.prefill_s * uncached_tokens

    def token_s(self, busy_slots: int) -> float:
        """Seconds for each token while this number of slots is busy, its own included."""
        return self.decode_s + self.decode_slope_s * busy_slots


DEFAULT_ESTIMATE = LatencyEstimate(
    fixed_s=0.1,
    prefill_s=0.0005,
    decode_s=0.03,
    decode_slope_s=0.001,
    answer_tokens=200.0,
    slot_s=5.0,
)


class EndpointLatency:
    """The latency samples of one endpoint. Every call is O(1), or O(readings)."""

    def __init__(self, answer: DecayingMean) -> None:
        """`answer` is shared by the fleet: the length of answers depends on the requests."""
        self._first = RobustLinearFit()
        self._decode = RobustLinearFit(decay=0.99)
        self._least_token_s = inf
        self._answer = answer
        self._slot = DecayingMean(clip=8.0)
        self._size = DecayingMean(decay=0.95, clip=8.0)
        self._headers = DecayingMean(decay=0.9)
        self._tasks: dict[Task, GenerationProgress] = {}
        self._observed_at = float("-inf")
        self._ends = 0
        self._ends_since = float("-inf")
        self.samples = 0
        """How many requests have ended here."""
        self._burst_left = 0

    @property
    def weight(self) -> float:
        """The decayed number of samples, about the number of recent answers."""
        return self._slot.weight

    @property
    def knows_pace(self) -> bool:
        """Whether its token rate is its own and not the fleet's."""
        return self._decode.weight >= LEAST_MEASURED

    def began(self) -> bool:
        """A request is sent there. Whether its token rate is not known, so that scrapes at once
        should follow until its answer shows it."""
        if self.knows_pace:
            return False
        self._burst_left = BURST_SCRAPES
        return True

    @property
    def is_sure_of_pace(self) -> bool:
        """Whether its token rate is known from many samples."""
        return self._decode.weight >= SURE_OF_PACE

    def wants_scrape(self, *, is_used: bool) -> bool:
        """Whether its token rate is not known, and another scrape at once may show it; `is_used`:
        requests of ours run there. Not for ever: llama-server does not notice that clients have
        left while it answers scrapes (docs/decisions/0007)."""
        if self.knows_pace:
            return False
        if any(task.is_seen_once for task in self._tasks.values()):
            return True
        if not is_used or not self._burst_left:
            return False
        self._burst_left -= 1
        return True

    def measured_token_s(self, busy_slots: int) -> float | None:
        """Seconds for each token by its own samples alone, while this number of slots is busy; None
        while there are few."""
        if not self.knows_pace:
            return None
        decode_s, slope_s = self._decode.coefficients((0.0, 0.0), prior_weight=0.0)
        return decode_s + slope_s * busy_slots

    def least_token_s(self, busy_slots: int) -> float | None:
        """Seconds for each token at its quickest of late, so that an answer of some time had no
        more tokens; None like `measured_token_s`."""
        token_s = self.measured_token_s(busy_slots)
        return None if token_s is None else min(token_s, self._least_token_s)

    def careful_token_s(self, busy_slots: int) -> float | None:
        """`measured_token_s`, but `least_token_s` while there are few samples."""
        rate = self.measured_token_s if self.is_sure_of_pace else self.least_token_s
        return rate(busy_slots)

    @property
    def trusts_headers(self) -> bool:
        """Whether a stream's headers come with its first token here."""
        return self._headers.weight > 1.5 and self._headers.value(0.0) >= TRUSTED_SHARE

    @property
    def tokens_per_estimate(self) -> float | None:
        """Real tokens for each token that was estimated from a prompt's length; None at first."""
        return self._size.value(1.0) if self._size.weight else None

    def answered(self, uncached_tokens: float, first_s: float) -> None:
        """The first token came `first_s` after a request was sent there, with this (estimated)
        number of tokens that were not cached."""
        self._first.add(uncached_tokens, first_s)

    def record_header_timing(self, *, is_first_token: bool) -> None:
        """A stream's headers came with its first token, or before it."""
        self._headers.add(1.0 if is_first_token else 0.0)

    def sized(self, real_tokens: int, estimated_tokens: int) -> None:
        """The real length of a prompt became known."""
        if estimated_tokens:
            self._size.add(real_tokens / estimated_tokens)

    def wants_end(self, now: float) -> bool:
        """Whether the end of one more request should be recorded: a few samples a second show as
        much as a thousand, and each costs every request some time."""
        if now - self._ends_since >= 1.0:
            self._ends_since, self._ends = now, 0
        self._ends += 1
        return self._ends <= MAX_ENDS_A_SECOND

    def lease_ended(self, slot_s: float) -> None:
        """A request used its slot for this time."""
        self._slot.add(slot_s)
        self.samples += 1

    def observe_slots(
        self, readings: Iterable[SlotReading], busy_slots: int, began_at: float, answered_at: float
    ) -> dict[Task, GenerationProgress]:
        """Record the token rate from slots that two scrapes saw with the same task; returns the
        progress of the running tasks. Times are monotonic seconds."""
        tasks: dict[Task, GenerationProgress] = {}
        for reading in readings:
            decoded = reading.decoded_tokens
            if decoded is None or len(tasks) >= MAX_TASKS:
                continue
            task = task_of(reading)
            progress = self._tasks.get(task) or GenerationProgress(self._observed_at, began_at)
            before_at, before = progress.last_token
            progress.seen(reading, began_at, answered_at)
            tasks[task] = progress
            if decoded > before > 0 and answered_at > before_at:
                token_s = (answered_at - before_at) / (decoded - before)
                self._decode.add(busy_slots, token_s)
                self._least_token_s = min(token_s, self._least_token_s * SLOWER)
        for task, progress in self._tasks.items():
            _, decoded = progress.last_token
            if task not in tasks and decoded:
                self._answer.add(decoded)
        self._tasks, self._observed_at = tasks, answered_at
        return tasks

    def as_plain(self) -> tuple[tuple[float, ...], ...]:
        """What it knows, for `restore`; not the tasks that run."""
        return (
            self._first.as_plain(),
            self._decode.as_plain(),
            self._slot.as_plain(),
            self._size.as_plain(),
            self._headers.as_plain(),
        )

    def restore(self, plain: tuple[tuple[float, ...], ...]) -> None:
        """Know what another one knew."""
        first, decode, slot, size, headers = plain
        self._first.restore(first)
        self._decode.restore(decode)
        self._slot.restore((slot[0], slot[1]))
        self._size.restore((size[0], size[1]))
        self._headers.restore((headers[0], headers[1]))

    def replaced(self) -> None:
        """A new process numbers its tasks from the start; it is assumed to be as fast."""
        self._tasks = {}

    def estimate(self, typical: LatencyEstimate) -> LatencyEstimate:
        """Its estimate, in which the `typical` endpoint counts where samples are few."""
        fixed_s, prefill_s = self._first.coefficients((typical.fixed_s, typical.prefill_s))
        decode_s, slope_s = self._decode.coefficients((typical.decode_s, typical.decode_slope_s))
        return LatencyEstimate(
            fixed_s=fixed_s,
            prefill_s=prefill_s,
            decode_s=decode_s,
            decode_slope_s=slope_s,
            answer_tokens=self._answer.value(typical.answer_tokens, prior_weight=5.0),
            slot_s=self._slot.value(typical.slot_s, prior_weight=5.0),
        )


Task = tuple[str, int]
"""A server's name for one request: a router numbers the tasks of each model separately."""


def task_of(reading: SlotReading) -> Task:
    return (reading.model, reading.task_id)


class LatencyModel(Learner):
    """The latencies of the fleet. `estimate` is cached and O(1), except for the first call in each
    `refresh_s`, which is O(endpoints)."""

    def __init__(self) -> None:
        self._answer = DecayingMean(decay=0.995, clip=8.0)
        self._endpoints: dict[Address, EndpointLatency] = {}
        self._estimates: dict[Address, LatencyEstimate] = {}
        self._typical = DEFAULT_ESTIMATE
        self._fresh_until = float("-inf")

    @property
    def has_learned(self) -> bool:
        """Whether there is a sample of any endpoint."""
        return any(endpoint.weight for endpoint in self._endpoints.values())

    def endpoint(self, address: Address) -> EndpointLatency:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            endpoint = self._endpoints[address] = EndpointLatency(self._answer)
        return endpoint

    def samples_of(self, address: Address) -> int:
        """How many requests have ended at an endpoint."""
        endpoint = self._endpoints.get(address)
        return 0 if endpoint is None else endpoint.samples

    def answers(self) -> tuple[float, float]:
        """The lengths of the fleet's answers, for `restore_answers`."""
        return self._answer.as_plain()

    def restore_answers(self, plain: tuple[float, float]) -> None:
        """Know the lengths that another one knew."""
        self._answer.restore(plain)
        self._fresh_until = float("-inf")

    def restore(self, address: Address, plain: tuple[tuple[float, ...], ...]) -> None:
        """Know of an endpoint what another one knew."""
        self.endpoint(address).restore(plain)
        self._fresh_until = float("-inf")

    def forget(self, address: Address) -> None:
        """The endpoint left the fleet. A new server at its address begins with the fleet's
        typical estimate."""
        self._endpoints.pop(address, None)
        self._estimates.pop(address, None)

    def replaced(self, address: Address, _now: float) -> None:
        self.endpoint(address).replaced()

    def estimate(self, address: Address, now: float) -> LatencyEstimate:
        """The estimate for an endpoint, at most `refresh_s` old."""
        if now >= self._fresh_until:
            self._refresh(now)
        estimate = self._estimates.get(address)
        if estimate is None:
            endpoint = self._endpoints.get(address)
            estimate = self._typical if endpoint is None else endpoint.estimate(self._typical)
            self._estimates[address] = estimate
        return estimate

    def typical(self, now: float) -> LatencyEstimate:
        """The estimate for the fleet's typical endpoint, at most `refresh_s` old."""
        if now >= self._fresh_until:
            self._refresh(now)
        return self._typical

    def _refresh(self, now: float) -> None:
        self._fresh_until = now + refresh_s(len(self._endpoints))
        self._estimates.clear()
        self._typical = _median_of(
            [
                endpoint.estimate(DEFAULT_ESTIMATE)
                for endpoint in self._endpoints.values()
                if endpoint.weight >= 3.0
            ]
        )


def _median_of(estimates: list[LatencyEstimate]) -> LatencyEstimate:
    if not estimates:
        return DEFAULT_ESTIMATE
    return LatencyEstimate(
        fixed_s=median(one.fixed_s for one in estimates),
        prefill_s=median(one.prefill_s for one in estimates),
        decode_s=median(one.decode_s for one in estimates),
        decode_slope_s=median(one.decode_slope_s for one in estimates),
        answer_tokens=median(one.answer_tokens for one in estimates),
        slot_s=median(one.slot_s for one in estimates),
    )
