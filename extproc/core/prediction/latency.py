"""How fast each endpoint is, learned from what passes, and what follows for a request.

    first token after  fixed_s + prefill_s * tokens that are not cached
    then each token    decode_s, by how many slots are busy
    slot held for      the sum, with the answer lengths that were seen

An endpoint of which little is known is taken for the fleet's median one. All of it decays, so
that a server that became slow is known as slow after some tens of requests. What may teach what
is said in `learning`.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from extproc.core.prediction.generation_progress import GenerationProgress
from extproc.core.prediction.statistics import DecayingMean, RobustLinearFit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.core.address import Address
    from extproc.core.observation import SlotReading

MAX_ENDS_A_SECOND = 50
MAX_TASKS = 1024
"""Slots whose progress is remembered from one look to the next, for each endpoint."""
TRUSTED_SHARE = 0.7
"""Of the streams that were looked at, so many must have had their headers with their first
token, before headers count as such."""


def refresh_s(endpoints: int) -> float:
    """How long a number that costs a look at so many endpoints is good for: they change slowly,
    and working it out must stay a small part of each second."""
    return max(1.0, endpoints / 500)


class LatencyEstimate(NamedTuple):
    """One endpoint's numbers, all in seconds."""

    fixed_s: float = 0.1
    prefill_s: float = 0.0005
    decode_s: float = 0.03
    decode_slope_s: float = 0.001
    answer_tokens: float = 200.0
    slot_s: float = 5.0

    def first_token_s(self, fresh_tokens: float) -> float:
        """Seconds to the first token, with so many tokens to read that are not cached."""
        return self.fixed_s + self.prefill_s * fresh_tokens

    def token_s(self, busy_slots: int) -> float:
        """Seconds for each token while so many slots are busy, its own among them."""
        return self.decode_s + self.decode_slope_s * busy_slots


DEFAULT_ESTIMATE = LatencyEstimate()


class EndpointLatency:
    """What was measured of one endpoint. Every call is O(1), or O(readings)."""

    __slots__ = (
        "_answer",
        "_courses",
        "_decode",
        "_ends",
        "_ends_since",
        "_first",
        "_headers",
        "_looked_at",
        "_size",
        "_slot",
    )

    def __init__(self, answer: DecayingMean) -> None:
        """`answer` is the fleet's: how long answers are is a matter of the requests."""
        self._first = RobustLinearFit()
        self._decode = RobustLinearFit(decay=0.99)
        self._answer = answer
        self._slot = DecayingMean(clip=8.0)
        self._size = DecayingMean(decay=0.95, clip=8.0)
        self._headers = DecayingMean(decay=0.9)
        self._courses: dict[Task, GenerationProgress] = {}
        self._looked_at = float("-inf")
        self._ends = 0
        self._ends_since = float("-inf")

    @property
    def weight(self) -> float:
        """How much was learned: about the number of answers, as far as they are remembered."""
        return self._slot.weight

    @property
    def knows_pace(self) -> bool:
        """Whether its pace of tokens is its own and not the fleet's."""
        return self._decode.weight >= 3.0

    @property
    def trusts_headers(self) -> bool:
        """Whether a stream's headers come with its first token here."""
        return self._headers.weight > 1.5 and self._headers.value(0.0) >= TRUSTED_SHARE

    @property
    def tokens_per_estimate(self) -> float | None:
        """Real tokens for each one that was estimated from a prompt's length; None at first."""
        return self._size.value(1.0) if self._size.weight else None

    def answered(self, fresh_tokens: float, first_s: float) -> None:
        """The first token came `first_s` after a request was sent there, with so many
        (estimated) tokens to read that were not cached."""
        self._first.add(fresh_tokens, first_s)

    def judged(self, *, is_first_token: bool) -> None:
        """A stream's headers turned out to come with its first token, or before."""
        self._headers.add(1.0 if is_first_token else 0.0)

    def sized(self, real_tokens: int, estimated_tokens: int) -> None:
        """A prompt's real length became known."""
        if estimated_tokens:
            self._size.add(real_tokens / estimated_tokens)

    def wants_end(self, now: float) -> bool:
        """Whether the end of one more request is worth a lesson: a few in a second tell as much
        as a thousand, and each costs every request some time."""
        if now - self._ends_since >= 1.0:
            self._ends_since, self._ends = now, 0
        self._ends += 1
        return self._ends <= MAX_ENDS_A_SECOND

    def ended(self, slot_s: float) -> None:
        """A request held its slot for so long."""
        self._slot.add(slot_s)

    def looked(
        self, readings: Iterable[SlotReading], busy_slots: int, began_at: float, answered_at: float
    ) -> dict[Task, GenerationProgress]:
        """Learn the pace of tokens from slots that were looked at twice during one request;
        returns the courses of what runs there. Times are monotonic seconds."""
        courses: dict[Task, GenerationProgress] = {}
        for reading in readings:
            decoded = reading.decoded_tokens
            if decoded is None or len(courses) >= MAX_TASKS:
                continue
            task = task_of(reading)
            course = self._courses.get(task) or GenerationProgress(self._looked_at, began_at)
            before_at, before = course.last_token
            course.seen(reading, began_at, answered_at)
            courses[task] = course
            if decoded > before > 0 and answered_at > before_at:
                self._decode.add(busy_slots, (answered_at - before_at) / (decoded - before))
        for task, course in self._courses.items():
            _, decoded = course.last_token
            if task not in courses and decoded:
                self._answer.add(decoded)
        self._courses, self._looked_at = courses, answered_at
        return courses

    def replaced(self) -> None:
        """Another process is there, which numbers its tasks anew."""
        self._courses = {}

    def speed(self, typical: LatencyEstimate) -> LatencyEstimate:
        """Its numbers; where little is known those of the `typical` endpoint count as well."""
        fixed_s, prefill_s = self._first.line((typical.fixed_s, typical.prefill_s))
        decode_s, slope_s = self._decode.line((typical.decode_s, typical.decode_slope_s))
        return LatencyEstimate(
            fixed_s=fixed_s,
            prefill_s=prefill_s,
            decode_s=decode_s,
            decode_slope_s=slope_s,
            answer_tokens=self._answer.value(typical.answer_tokens, trust=5.0),
            slot_s=self._slot.value(typical.slot_s, trust=5.0),
        )


Task = tuple[str, int]
"""What a server's process calls one request: a router numbers each of its models apart."""


def task_of(reading: SlotReading) -> Task:
    return (reading.model, reading.task_id)


class LatencyModel:
    """The stopwatches of the fleet. `estimate` is cached and O(1), but for the first call in each
    `refresh_s`, which is O(endpoints)."""

    def __init__(self) -> None:
        self._answer = DecayingMean(decay=0.995, clip=8.0)
        self._watches: dict[Address, EndpointLatency] = {}
        self._speeds: dict[Address, LatencyEstimate] = {}
        self._typical = DEFAULT_ESTIMATE
        self._fresh_until = float("-inf")

    @property
    def has_learned(self) -> bool:
        """Whether anything was learned of any endpoint."""
        return any(watch.weight for watch in self._watches.values())

    def endpoint(self, address: Address) -> EndpointLatency:
        watch = self._watches.get(address)
        if watch is None:
            watch = self._watches[address] = EndpointLatency(self._answer)
        return watch

    def forget(self, address: Address) -> None:
        """It left the fleet. A server that took its address is as fast as the one before, most
        likely, until it shows what it is."""
        self._watches.pop(address, None)
        self._speeds.pop(address, None)

    def estimate(self, address: Address, now: float) -> LatencyEstimate:
        """What is believed of an endpoint now, or a moment ago."""
        if now >= self._fresh_until:
            self._fresh_until = now + refresh_s(len(self._watches))
            self._speeds.clear()
            self._typical = _median_of(
                [
                    watch.speed(DEFAULT_ESTIMATE)
                    for watch in self._watches.values()
                    if watch.weight >= 3.0
                ]
            )
        speed = self._speeds.get(address)
        if speed is None:
            watch = self._watches.get(address)
            speed = self._typical if watch is None else watch.speed(self._typical)
            self._speeds[address] = speed
        return speed


def _median_of(speeds: list[LatencyEstimate]) -> LatencyEstimate:
    return (
        LatencyEstimate(*(median(numbers) for numbers in zip(*speeds, strict=True)))
        if speeds
        else DEFAULT_ESTIMATE
    )
