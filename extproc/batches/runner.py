"""Sends the lines of batches through Envoy, while slots are idle, and gives slots back.

    waiting -> claimed -> sent -> recorded
                  ^        |
                  +--------+  given back, no slot, or a failure that may pass

Lines are sent as requests that the picker never queues: it answers at once if it has no slot for
them, so they stand in nobody's way. The newest line of a pool is given back first: it has the
least to lose, and the oldest one is sure to end.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

import httpx

from extproc import header_names
from extproc.batches.gate import Capacity, Gate
from extproc.batches.lines import answered, unanswered
from extproc.batches.store import BatchStore, Line

MAX_TRIES: Final = 6
"""How often a line is sent whose server fails; what waits for a slot or is given back does not
count."""
FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 60.0
NO_SLOT_PAUSE_S: Final = 0.2
"""After the picker had no slot for a line of a model; longer each time in a row."""
MAX_NO_SLOT_PAUSE_S: Final = 2.0
KEY_PAUSE_S: Final = 30.0
"""After the picker took our key for none of its clients'."""
MAX_RUNNING: Final = 4096
CLAIMED_AHEAD: Final = 16
"""Lines of a model that are claimed beyond those that are sent now: a slot that becomes idle need
not wait for the store."""
TICK_S: Final = 1.0
"""The interval at which batches expire, and changes from outside are seen."""
CONNECT_S: Final = 5.0
RETRIED: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Other errors would come again: 400 is the client's, 500 the server's word about the request."""
NOT_SENT: Final = frozenset(
    {
        *("shed", "queue-timeout", "queue-full", "bound-reached", "rate-limited", "evicted"),
        *("no-endpoint", "shutting-down", "picker-lost", "budget-used-up"),
        *("invalid-api-key", "objective-not-allowed"),
    }
)
"""Reasons of rejections that say nothing about the line: no server has seen it."""
OF_CLIENT: Final = frozenset({"rate-limited", "invalid-api-key"})
"""Those among them that concern all lines of one client, and pass."""
FINAL: Final = frozenset({"budget-used-up", "objective-not-allowed"})
"""Those that a line of a client is answered with, as its own request would be."""

log = logging.getLogger("coxswain.batches")
ResultT = TypeVar("ResultT")


class News(Protocol):
    """What is known of the picker: see `PickerNews`."""

    def pool_of(self, model: str) -> str: ...

    def capacity(self, pool: str) -> Capacity | None: ...


InStore = Callable[..., Awaitable[ResultT]]


class Answer(NamedTuple):
    """A response to a line; `reason` is the picker's, of a rejection."""

    status: int
    request_id: str
    reason: str
    retry_after_s: float | None
    body: bytes


@dataclass(eq=False, slots=True)
class Running:
    """A line that was sent. It can be given back until its response has come."""

    line: Line
    pool: str
    task: asyncio.Task[None] | None = None
    is_answered: bool = False
    is_given_back: bool = False
    is_dropped: bool = False


@dataclass(slots=True)
class ModelLines:
    """The lines for one model that are claimed and not sent, and when the next may be."""

    claimed: deque[Line] = field(default_factory=deque)
    paused_until: float = 0.0
    pause_s: float = 0.0
    sent_at: float = 0.0


class Runner:
    """Runs from `run` until it is cancelled; then lines that run are given back. Call `wake` when
    anything has changed. Belongs to one event loop."""

    def __init__(
        self,
        store: BatchStore,
        in_store: InStore,  # type: ignore[type-arg]  # of any result
        news: News,
        client: httpx.AsyncClient,
        headers: Callable[[], Mapping[str, str]],
        opens: Callable[[str], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`in_store` calls a method of the store in its thread; `client` reaches Envoy;
        what `headers` returns goes with each line; `opens` says whether the key with this id still
        does."""
        self._store = store
        self._in_store = in_store
        self._news = news
        self._client = client
        self._headers = headers
        self._opens = opens
        self._clock = clock
        self._now = now
        self._changed = asyncio.Event()
        self._gates: dict[str, Gate] = {}
        self._models: dict[str, ModelLines] = {}
        self._running: dict[int, Running] = {}
        self._retries: dict[int, tuple[float, Line]] = {}
        self._failures: dict[int, int] = {}
        self._waiting: set[str] = set()
        self._paused: dict[str, float] = {}
        """Until when no line of these clients is sent."""
        self._error: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """The number of lines that have a slot."""
        return sum(not one.is_answered for one in self._running.values())

    def wake(self) -> None:
        """Look again: there may be other lines, slots, or requests that wait."""
        self._changed.set()

    async def run(self) -> None:
        """Send lines until cancelled. What has been answered by then is recorded. Raises what the
        store raises."""
        try:
            next_tick = 0.0
            while True:
                self._changed.clear()
                if self._error is not None:
                    raise self._error
                if self._clock() >= next_tick:
                    await self._tick()
                    next_tick = self._clock() + TICK_S
                self._give_back()
                await self._fill()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._rest_s(next_tick)):
                        await self._changed.wait()
        finally:
            for one in self._running.values():
                self._end(one)
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop_batch(self, batch: str) -> None:
        """A batch has ended from outside: its lines need no answer any more."""
        for lines in self._models.values():
            lines.claimed = deque(line for line in lines.claimed if line.batch != batch)
        for number, (_, line) in list(self._retries.items()):
            if line.batch == batch:
                del self._retries[number]
        for one in self._running.values():
            if one.line.batch == batch:
                one.is_dropped = True
                self._end(one)

    async def _tick(self) -> None:
        for batch in await self._in_store(self._store.expire, self._now()):
            log.info("%s has expired", batch)
            self.stop_batch(batch)
        failed = await self._in_store(self._store.fail_without_key, self._opens, self._now())
        for batch in failed:
            log.warning("%s ends: its key has expired or was revoked", batch)
            self.stop_batch(batch)
        now = self._clock()
        self._paused = {owner: until for owner, until in self._paused.items() if until > now}
        self._waiting = set(await self._in_store(self._store.open_models))
        for model, lines in list(self._models.items()):
            if not lines.claimed and lines.paused_until < now:
                del self._models[model]  # their names come from clients

    def _rest_s(self, next_tick: float) -> float:
        due = [next_tick, *(at for at, _ in self._retries.values())]
        # These ends are no news of the picker.
        due += [lines.paused_until for lines in self._models.values()]
        due += self._paused.values()
        due += [gate.settles_at or 0.0 for gate in self._gates.values()]
        now = self._clock()
        return max(0.01, min([at for at in due if at > now] or [now]) - now)

    def _give_back(self) -> None:
        """End lines for requests that wait."""
        now = self._clock()
        for name, gate in self._gates.items():
            capacity = self._news.capacity(name)
            if capacity is None:
                continue
            gate.heard(capacity.busy, now)
            missing = -gate.room(capacity, now)
            if missing <= 0:
                continue
            mine = [
                one
                for one in self._running.values()
                if one.pool == name and not one.is_answered and not one.is_given_back
            ]
            for one in list(reversed(mine))[:missing]:
                self._end(one)
                gate.given_back(now)

    def _end(self, one: Running) -> None:
        if not one.is_answered and one.task is not None:
            one.is_given_back = True
            one.task.cancel()

    async def _fill(self) -> None:
        """Send lines to the slots that are idle, those that were claimed before first."""
        now = self._clock()
        for number, (at, line) in list(self._retries.items()):
            if at <= now:
                del self._retries[number]
                self._lines(line.model).claimed.appendleft(line)
        paused = {owner for owner, until in self._paused.items() if until > now}
        models = {*self._models, *self._waiting}
        for model in sorted(models, key=lambda model: self._lines(model).sent_at):
            lines, pool = self._lines(model), self._news.pool_of(model)
            room = self._room(pool) if lines.paused_until <= now else 0
            missing = room - sum(line.owner not in paused for line in lines.claimed)
            if missing > 0 and model in self._waiting:
                count = missing + CLAIMED_AHEAD
                found = await self._in_store(self._store.claim, model, count, paused)
                lines.claimed.extend(found)
                if not found:
                    self._waiting.discard(model)
            ready = [line for line in lines.claimed if line.owner not in paused]
            for line in ready[: min(self._room(pool), room)]:
                lines.claimed.remove(line)
                self._send(line, pool)
                lines.sent_at = now

    def _lines(self, model: str) -> ModelLines:
        return self._models.setdefault(model, ModelLines())

    def _gate(self, pool: str) -> Gate:
        return self._gates.setdefault(pool, Gate())

    def _room(self, pool: str) -> int:
        capacity = self._news.capacity(pool)
        if capacity is None:
            return 0
        held = sum(one.pool == pool and not one.is_answered for one in self._running.values())
        room = self._gate(pool).room(capacity, self._clock())
        return max(0, min(room, capacity.slots - held, MAX_RUNNING - len(self._running)))

    def _send(self, line: Line, pool: str) -> None:
        one = Running(line, pool)
        self._running[line.number] = one
        self._gate(pool).begun(self._clock())
        one.task = asyncio.create_task(self._run_line(one), name=line.id)
        self._tasks.add(one.task)
        one.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._error = task.exception()
            self.wake()

    async def _run_line(self, one: Running) -> None:
        line = one.line
        try:
            answer = await self._ask(line)
            one.is_answered = True
            self.wake()
            await self._settle(one, answer)
        except asyncio.CancelledError:
            if not one.is_given_back:
                raise
            if not one.is_dropped:
                self._lines(line.model).claimed.appendleft(line)
        except httpx.HTTPError as error:
            one.is_answered = True
            await self._failed(line, type(error).__name__)
        finally:
            self._running.pop(line.number, None)
            self.wake()

    async def _ask(self, line: Line) -> Answer:
        headers = {
            **self._headers(),
            "content-type": "application/json",
            header_names.REQUEST_ID: line.id,
            header_names.QUEUE_TIMEOUT: "0",
        }
        if line.owner:
            headers[header_names.FAIRNESS_ID[0]] = line.owner
        found = await self._client.post(line.endpoint, content=line.body, headers=headers)
        return Answer(
            found.status_code,
            found.headers.get(header_names.REQUEST_ID, line.id),
            found.headers.get(header_names.REASON, ""),
            _seconds(found.headers.get("retry-after", "")),
            found.content,
        )

    async def _settle(self, one: Running, answer: Answer) -> None:
        """Record a response, or send the line again."""
        line, lines, gate = one.line, self._lines(one.line.model), self._gate(one.pool)
        is_final = bool(line.owner) and answer.reason in FINAL
        if answer.reason in NOT_SENT and not is_final:
            gate.rejected()
            lines.claimed.appendleft(line)
            self._pause(line, answer)
            return
        gate.ended()
        lines.pause_s = 0.0
        may_pass = answer.status in RETRIED and not is_final
        if may_pass and self._may_retry(line, answer.retry_after_s):
            return
        is_error = not 200 <= answer.status < 300
        result = answered(line.id, line.custom_id, answer.status, answer.request_id, answer.body)
        await self._record(line, result, is_error=is_error)

    def _pause(self, line: Line, answer: Answer) -> None:
        """Send no more lines for a while that would be rejected, too."""
        reason, lines = answer.reason, self._lines(line.model)
        if reason in ("invalid-api-key", "objective-not-allowed"):
            log.error("the picker rejects lines (%s): see --api-key-file, clients.batches", reason)
            pause_s = KEY_PAUSE_S
        elif reason in ("rate-limited", "budget-used-up") and answer.retry_after_s is not None:
            pause_s = min(MAX_PAUSE_S, answer.retry_after_s)
        else:
            lines.pause_s = min(MAX_NO_SLOT_PAUSE_S, max(NO_SLOT_PAUSE_S, 2 * lines.pause_s))
            pause_s = lines.pause_s
        until = self._clock() + pause_s
        if line.owner and reason in OF_CLIENT:
            self._paused[line.owner] = until
        else:
            lines.paused_until = until

    async def _failed(self, line: Line, name: str) -> None:
        """There is no response."""
        if self._may_retry(line, None):
            return
        message = f"The connection failed {MAX_TRIES} times: {name}."
        result = unanswered(line.id, line.custom_id, "connection_error", message)
        await self._record(line, result, is_error=True)

    def _may_retry(self, line: Line, retry_after_s: float | None) -> bool:
        """Send it again later, unless it failed too often."""
        failures = self._failures[line.number] = self._failures.get(line.number, 0) + 1
        if failures >= MAX_TRIES:
            return False
        pause_s = FIRST_PAUSE_S * 2 ** (failures - 1) if retry_after_s is None else retry_after_s
        self._retries[line.number] = self._clock() + min(MAX_PAUSE_S, pause_s), line
        return True

    async def _record(self, line: Line, result: bytes, *, is_error: bool) -> None:
        self._failures.pop(line.number, None)
        await self._in_store(self._store.record, line, result, self._now(), is_error=is_error)


def _seconds(text: str) -> float | None:
    """What Retry-After says, if it is a number."""
    return float(text) if text.isascii() and text.isdigit() else None
