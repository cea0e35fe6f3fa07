"""Makes the counts of requests whose clients left agree with what their server counted.

A server with `--metrics` counts the tokens of all its tasks. Between two readings of its counters

    counted = whole responses + requests whose tokens are estimated + foreign requests

of which whole responses are known exactly. So what the other requests used together is known too,
unless somebody else used the server: the difference between that and their estimates is split over
those whose counts are not known for certain, and takes none of them below what was seen of it. Only
what these cannot have is split over the others.

A reading is comparable if every request of ours that has ended is in the counters, and none that
runs: the caller says so. Requests are `held` until a reading has been compared that began after
their end, or until `HOLD_S` has passed; then they count as estimated. A difference that no held
request can have is somebody else's: from there the comparison starts over.

Pure: time is an argument, in monotonic seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from extproc.usage.counts import UsageCounts
from extproc.usage.ended_tasks import Work

BASE_S: Final = 5.0
"""How often the counters are read while nobody leaves: what is not ours is found by it."""
PRESSING_S: Final = 0.3
"""How often they are read at most while requests are held."""
HOLD_S: Final = 30.0
"""A server that shows no comparable reading until then is too busy for it, or others use it."""
LATE_S: Final = 90.0
"""A reading is given up if requests that had ended before it are not counted until then."""
MAX_HELD: Final = 1_000
"""Of one server; one more is counted as estimated."""
UNREAD: Final = 3
"""A server that does not show its counters this often in a row has none."""
UNREAD_S: Final = 30.0
"""How often such a server is asked again."""


class Tokens(NamedTuple):
    """Tokens as servers count them: of prompts those that were processed and those that were found
    in the cache, and the generated ones."""

    processed: int = 0
    cached: int = 0
    generated: int = 0

    @classmethod
    def of(cls, counted: Work | UsageCounts) -> "Tokens":
        """Those of counts in which cached tokens are a part of the prompt's."""
        cached = counted.cached_tokens
        return cls(counted.prompt_tokens - cached, cached, counted.generated_tokens)

    def plus(self, other: Self, factor: int = 1) -> "Tokens":
        """The sums; `factor` is that of `other`."""
        return Tokens(*(a + factor * b for a, b in zip(self, other, strict=True)))


@dataclass(slots=True, eq=False)
class Held:
    """A request whose counts are estimates, None if nothing of it was seen."""

    exchange_id: str
    work: Work | None
    since: float
    tokens: Tokens = field(init=False)
    """The estimate, and then what it is counted as."""
    is_compared: bool = False
    """Whether the server's counters agree."""

    def __post_init__(self) -> None:
        self.tokens = Tokens() if self.work is None else Tokens.of(self.work)

    @property
    def least(self) -> Tokens:
        """What was seen of it at least."""
        work = self.work
        if work is None:
            return Tokens()
        if work.is_prompt_certain:
            return self.tokens._replace(generated=work.least_generated_tokens)
        return Tokens(generated=work.least_generated_tokens)

    def can_differ(self, name: str) -> bool:
        """Whether this count is not known for certain."""
        work = self.work
        if work is None:
            return True
        return not (work.is_generated_certain if name == "generated" else work.is_prompt_certain)


@dataclass(slots=True, kw_only=True, eq=False)
class _Reading:
    counted: Tokens
    rounding: Tokens
    booked: Tokens
    """Of the requests that had ended by then."""
    pending: set[str]
    """The requests that had ended by then, and whose counts are not known yet."""
    held: list[Held]
    at: float


class Reconciliation:
    """What one server counts against what is known of its requests. O(1) a request, O(held +
    pending requests) a reading."""

    def __init__(self) -> None:
        self._booked = Tokens()
        self._offset: Tokens | None = None
        """What the server had counted beyond the booked tokens when the comparison began."""
        self._reading: _Reading | None = None
        self._held: list[Held] = []
        self._done: list[Held] = []
        self._asked_at = float("-inf")
        self._unread = UNREAD
        self._is_changed = True
        """Whether a request was booked since the last reading."""

    @property
    def is_active(self) -> bool:
        """Whether requests may be held: the server shows its counters."""
        return self._unread < UNREAD

    @property
    def is_idle(self) -> bool:
        """Whether it holds no request."""
        return not (self._held or self._done or (self._reading is not None and self._reading.held))

    def wants_reading(self, now: float, *, is_pressing: bool) -> bool:
        """Whether to read the counters now; `is_pressing`: the client of a request left, so that it
        will be held. The caller reads them if so."""
        if self._reading is not None:
            return False
        if not self.is_active:
            pause_s = UNREAD_S
        elif is_pressing or self._held or self._offset is None:
            pause_s = PRESSING_S
        elif self._is_changed:
            pause_s = BASE_S
        else:
            return False
        if now < self._asked_at + pause_s:
            return False
        self._asked_at = now
        return True

    def was_read(self, *, is_shown: bool) -> None:
        """The server was asked for its counters; `is_shown`: and has answered."""
        self._unread = 0 if is_shown else self._unread + 1

    def start_over(self) -> None:
        """Somebody else uses the server, or another process serves there: what it counted until the
        next reading cannot be compared."""
        self._offset = None
        reading, self._reading = self._reading, None
        if reading is not None:
            self._held = reading.held + self._held

    def book(self, exchange_id: str, tokens: Tokens) -> None:
        """A request was counted, with exactly these tokens."""
        self._booked = self._booked.plus(tokens)
        self._is_changed = True
        reading = self._reading
        if reading is not None and exchange_id in reading.pending:
            reading.pending.remove(exchange_id)
            reading.booked = reading.booked.plus(tokens)
            self._compare()

    def hold(self, held: Held) -> None:
        """A request ended whose tokens are estimates."""
        reading = self._reading
        if reading is not None and held.exchange_id in reading.pending:
            reading.pending.remove(held.exchange_id)
            reading.held.append(held)
            self._compare()
            return
        self._held.append(held)
        if len(self._held) > MAX_HELD:
            self._finish([self._held.pop(0)])
            self._offset = None

    def read(self, counted: Tokens, rounding: Tokens, pending: Iterable[str], now: float) -> None:
        """A comparable reading: what the server counted for tasks that have ended, off by
        `rounding` at most. `pending` are the requests that had ended before, and are neither booked
        nor held yet. Ignored while the one before waits for such requests."""
        if self._reading is not None:
            return
        self._reading = _Reading(
            counted=counted,
            rounding=rounding,
            booked=self._booked,
            pending=set(pending),
            held=self._held,
            at=now,
        )
        self._held = []
        self._is_changed = False
        self._compare()

    def settle(self, now: float, *, is_last: bool = False) -> list[Held]:
        """The requests that are decided by now; `is_last`: all of them."""
        reading = self._reading
        if reading is not None and (is_last or now > reading.at + LATE_S):
            self.start_over()
        late = [one for one in self._held if is_last or now > one.since + HOLD_S]
        if late:
            self._held = [one for one in self._held if one not in late]
            self._finish(late)
            self._offset = None
        done, self._done = self._done, []
        return done

    def _finish(self, requests: list[Held]) -> None:
        for one in requests:
            self._booked = self._booked.plus(one.tokens)
        self._done += requests

    def _compare(self) -> None:
        reading = self._reading
        if reading is None or reading.pending:
            return
        self._reading = None
        explained = reading.booked
        for one in reading.held:
            explained = explained.plus(one.tokens)
        found = reading.counted.plus(explained, -1)
        if self._offset is not None and self._is_shared(found, reading):
            for one in reading.held:
                one.is_compared = True
        else:
            self._offset = found
        self._finish(reading.held)

    def _is_shared(self, found: Tokens, reading: _Reading) -> bool:
        """Split the difference over the held requests. Returns whether they can have all of it;
        else nothing is split."""
        assert self._offset is not None
        estimates = [one.tokens for one in reading.held]
        for name, difference, rounding in zip(
            Tokens._fields, found.plus(self._offset, -1), reading.rounding, strict=True
        ):
            if abs(difference) <= rounding:
                continue  # if it is no rounding, the next readings show it too
            rest = _split(name, difference, reading.held)
            if abs(rest) > rounding:
                rest = _split_guessed(name, rest, reading.held)
            if abs(rest) > rounding:
                for one, estimate in zip(reading.held, estimates, strict=True):
                    one.tokens = estimate
                return False
        return True


def _split(name: str, difference: int, held: list[Held]) -> int:
    """Add to this count of the requests, in proportion to what they have; returns the rest."""
    able = [one for one in held if one.can_differ(name)]
    weights = [1 + getattr(one.tokens, name) for one in able]
    remaining_weight = sum(weights)
    for one, weight in sorted(zip(able, weights, strict=True), key=lambda each: each[1]):
        has = getattr(one.tokens, name)
        share = round(difference * weight / remaining_weight)
        share = max(share, getattr(one.least, name) - has)
        one.tokens = one.tokens._replace(**{name: has + share})
        difference -= share
        remaining_weight -= weight
    return difference


def _split_guessed(name: str, rest: int, held: list[Held]) -> int:
    """A task may have been taken for that of another request, so that counts of both are off, even
    if they are some task's own: add this to them too, to none more than all that it has. Returns
    what is left."""
    for one in held:
        has = getattr(one.tokens, name)
        share = max(-has, min(rest, sum(one.tokens)))
        one.tokens = one.tokens._replace(**{name: has + share})
        rest -= share
    return rest
