"""Finds what a server did for requests whose clients left: their responses have no counts.

/slots shows of a busy slot the number of its task, the length of its prompt and the tokens that
were generated so far. After the task has ended, the idle slot still shows the task's number and how
many tokens it held, until the next task takes the slot:

    held = prompt + generated - 1        the last token was not processed any more

A busy slot says how long the prompt is, so the rest was generated: llama-server counts the same in
/metrics, whether the client left or not. If another task takes the slot before a scrape has shown
the end, the rest is estimated: of a stream by the events that passed, else by the task's rate.

Which task was that of which request is not said. A task can be a request's if it was first shown
while the request may have arrived, and if it ended after the client had left; of a stream, the
number of events that passed is known besides. The tasks of whole responses are excluded by their
counts. While there are more tasks than requests that they can be of, the requests wait.

A server notices late that the client of an ordinary response has left: a second after it last had
something to say to anybody. So a task may go on to its end.

Pure: time is an argument, in monotonic seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from extproc.core.observation import Observation, SlotReading

ARRIVAL_S: Final = 0.25
"""A request whose client left may have reached its server's queue until then."""
STARTED_S: Final = 2.0
"""A request reaches its server within this time after it got its slot; slow uploads are not
recognized."""
SETTLE_S: Final = 0.3
"""After this time the counts of whole responses are here, and exclude their tasks."""
UNSHOWN_S: Final = 5.0
"""A request that no scrape showed until then is counted by what passed of its response."""
PATIENCE_S: Final = 60.0
"""The time in which all but one of the tasks may be excluded; then the best one is taken."""
LONGEST_S: Final = 600.0
"""A task that runs on for longer is counted as far as it is."""
FORGET_S: Final = 90.0
MAX_TASKS: Final = 2_000
"""The most tasks, and the most whole responses, of one server that are kept."""
MAX_WAITING: Final = 1_000
LATE_EVENTS: Final = 64
"""A server may generate this number of tokens beyond the events that reached Envoy."""
NOTICE_S: Final = 1.0
"""llama-server looks so long after its last message to anybody whether a client has left."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Task:
    shown_after: float
    """It began after this time: a scrape that began then did not show it."""
    shown_at: float
    """A scrape that was answered then showed it first."""
    last_at: float
    busy_at: float = float("-inf")
    """It was busy after a scrape that began then."""
    prompt: int | None = None
    prefilled: int = 0
    last_shown: int | None = None
    """What the slot held at the last scrape."""
    cached: int = 0
    decoded: int = 0
    remaining: int | None = None
    rate: float = 0.0
    """Tokens generated a second, over all scrapes that showed some; two of them alone may have been
    answered at once."""
    first_decoded: tuple[float, int] | None = None
    """When a scrape showed the first generated tokens, and how many."""
    held: int | None = None
    ended_at: float | None = None
    """A scrape that was answered then showed that it had ended, or did not show it any more."""
    is_taken: bool = False
    """Its request is known."""

    def run(self, reading: SlotReading, began_at: float, now: float) -> None:
        """A scrape shows it busy."""
        decoded = reading.decoded_tokens or 0
        self.busy_at = began_at
        self.cached = max(self.cached, reading.cached_tokens or 0)
        # Before its first batch a slot shows what the previous task has left.
        is_begun = decoded or reading.cached_tokens or reading.processed_tokens
        if is_begun or reading.prompt_tokens == self.last_shown:
            self.prefilled = max(self.prefilled, reading.prompt_tokens or 0)
        self.last_shown = reading.prompt_tokens
        self.remaining = reading.remaining_tokens
        if decoded and reading.whole_prompt_tokens is not None:
            self.prompt = reading.whole_prompt_tokens
        if decoded > self.decoded:
            since, before = self.first_decoded or (self.last_at, 0)
            if self.first_decoded is None:
                self.first_decoded = now, decoded
            if now > since:
                self.rate = (decoded - before) / (now - since)
        self.decoded = max(self.decoded, decoded)

    @property
    def unseen(self) -> int:
        """The tokens that it probably generated after the last scrape that showed it, if none
        showed its end."""
        if self.held is not None or self.ended_at is None:
            return 0
        gap_s = self.ended_at - self.last_at
        possible = self.rate * gap_s
        if self.remaining is not None and self.remaining <= possible:
            return self.remaining
        return round(self.rate * NOTICE_S if gap_s > NOTICE_S else possible / 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Left:
    """A request whose client left at `left_at`. It had a slot from `opened_at`; `events` of its
    stream had passed, 0 of an ordinary response. `prompt_tokens` and `cached_tokens` are None
    unless the response said them."""

    opened_at: float
    left_at: float
    events: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a server did for a request, in tokens. Cached ones of a prompt that no scrape saw count
    as not cached. `is_prompt_certain`: the first two are the server's own counts;
    `is_generated_certain`: the third is. At least `least_generated_tokens` were seen."""

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    is_prompt_certain: bool = field(default=False, compare=False, repr=False)
    is_generated_certain: bool = field(default=False, compare=False, repr=False)
    least_generated_tokens: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Served:
    opened_at: float
    ended_at: float
    prompt: int
    generated: int


class EndedTasks:
    """Of one server. O(tasks) a scrape; O((tasks + responses) x waiting requests) a settlement."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, int], _Task] = {}
        self._served: list[_Served] = []
        self._waiting: list[Left] = []
        self._last_began_at = float("-inf")
        self._instance: str | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its task."""
        return not self._waiting

    def observe(self, observation: Observation) -> None:
        """Take what a scrape shows."""
        if observation.busy_slots is None:
            return
        if observation.instance != self._instance:
            self._instance = observation.instance
            self._tasks.clear()  # another process, which numbers its tasks from 0 again
        now, began_at = observation.answered_at, observation.began_at
        for reading in observation.slot_readings:
            task = self._shown((reading.model, reading.task_id), now)
            task.run(reading, began_at, now)
            task.last_at = now
        for ended in observation.ended_tasks:
            task = self._shown((ended.model, ended.task_id), now)
            if task.ended_at is None:
                task.ended_at, task.held = now, ended.held_tokens
            task.last_at = now
        for task in self._tasks.values():
            if task.last_at < now and task.ended_at is None:
                task.ended_at = now  # another one has its slot
        self._last_began_at = began_at
        self._forget(now)

    def _shown(self, name: tuple[str, int], now: float) -> _Task:
        task = self._tasks.get(name)
        if task is None:
            task = _Task(shown_after=self._last_began_at, shown_at=now, last_at=now)
            self._tasks[name] = task
        return task

    def _forget(self, now: float) -> None:
        for name in [key for key, task in self._tasks.items() if task.last_at < now - FORGET_S]:
            del self._tasks[name]
        while len(self._tasks) > MAX_TASKS:
            del self._tasks[next(iter(self._tasks))]

    def have_generated(self, readings: Iterable[SlotReading], since: float) -> bool:
        """Whether all these busy slots were shown generating at that time or before."""
        for reading in readings:
            task = self._tasks.get((reading.model, reading.task_id))
            first = None if task is None else task.first_decoded
            if first is None or first[0] > since:
                return False
        return True

    def served(self, opened_at: float, ended_at: float, prompt: int, generated: int) -> None:
        """A request got a whole response with these counts: its task is nobody else's."""
        self._served.append(_Served(opened_at, ended_at, prompt, generated))
        if len(self._served) > 2 * MAX_TASKS:
            del self._served[:MAX_TASKS]

    def left(self, request: Left) -> None:
        """The client of this request left. `settle` returns what was done for it, later."""
        self._waiting.append(request)

    def left_since(self, since: float) -> int:
        """How many requests wait for their task whose client left after that time."""
        return sum(one.left_at > since for one in self._waiting)

    def settle(
        self, now: float, *, is_last: bool = False, patience_s: float = PATIENCE_S
    ) -> list[tuple[Left, Work | None]]:
        """The requests that are decided by now, with what was done for them; None if nothing is
        known. `is_last`: all of them, by what is known. After `patience_s` the best of several
        tasks is taken."""
        if not self._waiting:
            return []
        self._served = [one for one in self._served if one.ended_at > now - FORGET_S]
        self._exclude_served()
        done: list[tuple[Left, Work | None]] = []
        has_room = len(self._waiting) <= MAX_WAITING
        # Those of which more is known first: they leave fewer tasks to the others.
        for request in sorted(self._waiting, key=lambda one: (-one.events, one.left_at)):
            waited_s = now - request.left_at
            if waited_s < SETTLE_S and not is_last:
                continue
            found = self._candidates(request)
            if not found:
                if is_last or waited_s > UNSHOWN_S or not has_room:
                    done.append((request, _by_events(request)))
                continue
            task = found[0]
            must_decide = is_last or waited_s > LONGEST_S or not has_room
            if not must_decide and not _is_settled(task, now):
                continue
            is_certain = self._is_certain(found)
            is_decided = is_certain and all(_is_settled(one, now) for one in found)
            if must_decide or waited_s > patience_s or is_decided:
                task.is_taken = True
                done.append((request, _work(task, request, is_certain=is_certain)))
        finished = {id(request) for request, _ in done}
        self._waiting = [one for one in self._waiting if id(one) not in finished]
        return done

    def _candidates(self, request: Left) -> list[_Task]:
        """The tasks that can be the request's, the best one first."""
        found = []
        for task in self._tasks.values():
            if not task.is_taken and _can_be(task, request):
                misfit = _misfit(task, request)
                if misfit is not None:
                    found.append((misfit, task.shown_at, task))
        found.sort(key=lambda one: one[:2])
        return [task for *_, task in found]

    def _is_certain(self, found: list[_Task]) -> bool:
        """Whether each of these tasks is that of a client that left."""
        rivals = sum(
            1
            for other in self._waiting
            if any(_can_be(task, other) and _misfit(task, other) is not None for task in found)
        )
        return len(found) <= rivals

    def _exclude_served(self) -> None:
        """Take the tasks of whole responses from those that can be a waiting request's."""
        wanted = [
            task
            for task in self._tasks.values()
            if not task.is_taken
            and task.ended_at is not None
            and any(_can_be(task, request) for request in self._waiting)
        ]
        if not wanted:
            return
        unused = []
        for one in self._served:
            fitting = [task for task in wanted if not task.is_taken and _has_served(task, one)]
            if fitting:
                best = min(fitting, key=lambda task: (task.held is None, task.shown_at))
                best.is_taken = True
            else:
                unused.append(one)
        self._served = unused


def _is_settled(task: _Task, now: float) -> bool:
    return task.ended_at is not None and now >= task.ended_at + SETTLE_S


def _has_served(task: _Task, one: _Served) -> bool:
    """Whether this whole response can be the task's."""
    if not (
        task.prompt in (None, one.prompt)
        and task.decoded <= one.generated
        and task.shown_after <= one.ended_at
        and task.shown_at >= one.opened_at
        and task.busy_at <= one.ended_at
    ):
        return False
    if task.held is not None:
        return task.held == one.prompt + max(0, one.generated - 1)
    if task.ended_at is None or task.prompt is None or one.ended_at > task.ended_at + SETTLE_S:
        return False
    return one.generated <= task.decoded + task.rate * 2 * (task.ended_at - task.last_at) + 8


def _can_be(task: _Task, request: Left) -> bool:
    """Whether its times allow that it is the request's."""
    return (
        task.shown_after <= min(request.left_at + ARRIVAL_S, request.opened_at + STARTED_S)
        and task.shown_at >= request.opened_at
        and (task.ended_at is None or task.ended_at >= request.left_at)
    )


def _misfit(task: _Task, request: Left) -> int | None:
    """By how many tokens its counts differ from what passed; None if it cannot be the request's."""
    if request.prompt_tokens is not None and task.prompt not in (None, request.prompt_tokens):
        return None
    generated = _generated(task, request)
    if not request.events or generated is None:
        return 0
    more = generated - request.events
    if task.held is None and task.ended_at is None and more < 0:
        return -more  # it goes on
    # A role, a usage or a prompt's progress are events without a token.
    return abs(more) if -max(4, request.events // 2) <= more <= LATE_EVENTS else None


def _prompt(task: _Task, request: Left) -> int | None:
    return task.prompt if task.prompt is not None else request.prompt_tokens


def _generated(task: _Task, request: Left) -> int | None:
    """The tokens that it generated, as far as is known; None if its prompt is not known."""
    prompt = _prompt(task, request)
    if task.held is None:
        return task.decoded + (0 if request.events else task.unseen)
    return None if prompt is None else max(task.decoded, task.held + 1 - prompt)


def _work(task: _Task, request: Left, *, is_certain: bool) -> Work | None:
    """What the task did; None if no scrape showed any of its prompt, which the server may have read
    to the end. Not `is_certain`: another task may be the request's, so this one shows little."""
    prompt, generated = _prompt(task, request), _generated(task, request)
    if task.held is None:
        if prompt is None and not task.prefilled:
            return None
        generated = max(generated or 0, request.events)
        prompt = task.prefilled if prompt is None else prompt
    elif prompt is None or generated is None:  # nothing showed its prompt by itself
        generated = min(request.events, task.held + 1)
        prompt = task.held + 1 - generated if generated else task.held
    seen = task.decoded if is_certain else 0
    return Work(
        prompt_tokens=prompt,
        cached_tokens=min(max(task.cached, request.cached_tokens or 0), prompt),
        generated_tokens=generated,
        is_prompt_certain=is_certain and task.prompt is not None,
        is_generated_certain=is_certain and task.prompt is not None and task.held is not None,
        least_generated_tokens=min(generated, max(seen, request.events // 2)),
    )


def _by_events(request: Left) -> Work | None:
    """What passed, if its prompt is known: close to the truth for a stream."""
    if request.prompt_tokens is None:
        return None
    return Work(
        prompt_tokens=request.prompt_tokens,
        cached_tokens=request.cached_tokens or 0,
        generated_tokens=request.events,
        least_generated_tokens=request.events // 2,
    )
