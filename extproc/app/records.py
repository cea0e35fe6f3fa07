"""Keeps ended requests for operators: in memory, and in a file that a thread of its own writes."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.exchange_registry import (
    ExchangeRegistry,
    ExchangeSnapshot,
    ExchangeState,
    KnownExchange,
)
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.records.file import RecordFile
from extproc.records.neighbours import Neighbours, Run, neighbours
from extproc.records.request_record import RequestRecord, record_of, tokens_seen
from extproc.records.ring import MAX_CHARS, RecordRing
from extproc.records.selection import Selection, mention
from extproc.records.wait_samples import INTERVAL_S, NOT_SAMPLED, SampledWait, WaitSamples
from extproc.settings.logging_section import RecordsSettings

SAVE_S: Final = 1.0
SETTLE_S: Final = 3.0
"""A record is written this long after its end: its tokens may be counted later."""
MAX_BATCH: Final = 5_000
"""Records that are written together."""
MAX_NEIGHBOURS: Final = 20_000
"""Requests of the file that are compared with one."""
MAX_FOUND: Final = 100
"""Of the same request id in the file."""

ResultT = TypeVar("ResultT")

log = logging.getLogger("coxswain.records")


class Records:
    """Belongs to one event loop. `request_ended` costs a microsecond."""

    def __init__(
        self,
        settings: RecordsSettings,
        dispatcher: Dispatcher,
        registry: ExchangeRegistry,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` is the core's."""
        self._clock = clock
        self._unix_clock = unix_clock
        self._registry = registry
        self._began_at = unix_clock()
        self._ring = RecordRing(settings.size)
        self._dispatcher = dispatcher
        self._samples = WaitSamples(dispatcher, registry)
        self._file: RecordFile | None = None
        self._path = ""
        if settings.path is not None:
            path = Path(settings.path).expanduser()
            self._path = str(path)
            self._file = RecordFile(path, settings.max_mb * 1_000_000)
        self._unsaved: deque[tuple[ExchangeRecord, SampledWait | None]] = deque()
        self._most_unsaved = max(settings.size, MAX_BATCH)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="records")
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None
        self._problem = ""
        self._lost = 0

    @property
    def instance(self) -> str:
        """Distinguishes this process from the one before: its numbers begin again."""
        return f"{self._began_at:.6f}"

    @property
    def total(self) -> int:
        """The number of the newest record."""
        return self._ring.total

    def start(self) -> None:
        """Sample the queue and write the file from now on."""
        self._sample()
        if self._file is not None:
            self._saving = asyncio.create_task(self._save_often(), name="write ended requests")

    async def aclose(self) -> None:
        """Write what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait({self._saving})
            self._saving = None
            await self._save(float("inf"))
        self._thread.shutdown(wait=False)

    def request_ended(self, record: ExchangeRecord) -> None:
        """An exchange ended. One that took no slot is not kept."""
        if record.outcome is Outcome.PASSED:
            return
        wait = self._samples.take(record.exchange_id)
        self._ring.add(record, wait)
        if self._file is None:
            return
        if len(self._unsaved) < self._most_unsaved:
            self._unsaved.append((record, wait))
        else:
            self._lost += 1

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the file, as text for operators; empty without a problem."""
        return (self._problem,) if self._problem else ()

    # Reading

    async def find(self, id_: str) -> list[RequestRecord]:
        """The ended requests with this exchange id or request id, newest first: those in memory,
        or, if there is none, those in the file. Raises `OSError`."""
        id_ = id_[:MAX_CHARS]
        offset_s = self._unix_offset_s()
        found = [
            record_of(record, wait, offset_s)
            for _, record, wait in self._ring.newest_first()
            if id_ in (record.exchange_id, record.request_id)
        ]
        if found or self._file is None or not id_:
            return found
        named = mention(id_)
        return await self._read_file(
            lambda line: named in line,
            0.0,
            lambda record: id_ in (record.exchange_id, record.request_id),
            MAX_FOUND,
        )

    async def select(
        self, selection: Selection, since_s: float, limit: int, after: int
    ) -> tuple[list[RequestRecord], int]:
        """The newest `limit` of what is selected and ended in the last `since_s` seconds, oldest
        first; and how many there are. With `after`, only those with higher numbers, of this
        process. Raises `OSError`."""
        since = self._unix_clock() - since_s if since_s else 0.0
        offset_s = self._unix_offset_s()
        found: list[RequestRecord] = []
        total = 0
        oldest: float | None = None
        for number, record, wait in self._ring.newest_first():
            ended_at = record.ended_at + offset_s
            if number <= after or ended_at < since:
                break
            oldest = ended_at
            if selection.takes(record):
                total += 1
                if len(found) < limit:
                    found.append(record_of(record, wait, offset_s))
        else:
            if self._file is not None and not after:
                older = await self._read_file(
                    selection.may_take,
                    since,
                    partial(_is_older, selection, self._began_at if oldest is None else oldest),
                    limit + 1,
                )
                total += len(older)
                found += older[: limit - len(found)]
        return found[::-1], total

    async def beside(self, record: RequestRecord) -> Neighbours | None:
        """The others at its server meanwhile, as far as they are kept; None if it was at none.
        Raises `OSError`."""
        if record.server_s is None or not record.endpoint:
            return None
        own = Run(
            exchange_id=record.exchange_id,
            endpoint=record.endpoint,
            began_at=record.ended_at - record.server_s,
            ended_at=record.ended_at,
        )
        runs = {run.exchange_id: run for run in self._runs(own)}
        all_known = self._reaches(own.began_at)
        if not all_known and self._file is not None:
            older, all_known = await self._read_runs(own)
            runs = {run.exchange_id: run for run in older} | runs
        return neighbours(own, runs.values(), all_known=all_known)

    async def _read_runs(self, own: Run) -> tuple[list[Run], bool]:
        """Those of the file that ended since it began, and whether the file reaches so far back."""
        file, named = self._file, mention(own.endpoint)
        assert file is not None

        def read() -> tuple[list[Run], bool]:
            found: list[Run] = []
            for record in file.newest_first(lambda line: named in line, 0.0):
                if record.ended_at < own.began_at:
                    return found, True
                began_at = record.ended_at - (record.server_s or 0.0)
                if began_at < own.ended_at and len(found) < MAX_NEIGHBOURS:
                    found.append(
                        _run(record.exchange_id, record.endpoint, began_at, record.ended_at)
                    )
            return found, False

        return await self._in_thread(read)

    def _runs(self, own: Run) -> Iterator[Run]:
        offset_s = self._unix_offset_s()
        now = self._clock()
        for exchange in self._registry:
            lease = exchange.lease
            if lease is not None:
                yield _run(
                    exchange.id, str(lease.address), lease.opened_at + offset_s, now + offset_s
                )
        for _, record, _ in self._ring.newest_first():
            ended_at = record.ended_at + offset_s
            if ended_at < own.began_at:
                return
            if record.opened_at is not None and record.endpoint is not None:
                opened_at = record.opened_at + offset_s
                yield _run(record.exchange_id, str(record.endpoint), opened_at, ended_at)

    def _reaches(self, moment: float) -> bool:
        """Whether every request that ended since then is in memory."""
        if self._ring.is_whole:
            return moment >= self._began_at
        oldest = self._ring.oldest
        return oldest is not None and oldest.ended_at + self._unix_offset_s() <= moment

    def live(self, exchange: KnownExchange, snapshot: ExchangeSnapshot) -> RequestRecord:
        """A running or queued request as it is now."""
        now, lease = self._clock(), exchange.lease
        wait, ticket = self._samples.get(snapshot.exchange_id) or NOT_SAMPLED, snapshot.ticket
        note = wait.note
        if snapshot.state is ExchangeState.QUEUED and ticket is not None:
            note = self._dispatcher.view.queue_note(ticket.resolved, ticket.request, now)
        server_s = first_token_s = seen_s = prompt = cached = generated = None
        if lease is not None:
            server_s = max(0.0, now - lease.opened_at)
            if lease.answered_at is not None:
                first_token_s = max(0.0, lease.answered_at - lease.opened_at)
            if lease.seen is not None:
                prompt, cached, generated, seen_s = tokens_seen(lease.seen, now)
        is_decided = lease is not None or ticket is not None
        arrival_s = snapshot.age_s - snapshot.waited_s - (server_s or 0.0)
        return RequestRecord(
            exchange_id=snapshot.exchange_id,
            request_id=snapshot.request_id,
            state=snapshot.state.value,
            client=snapshot.client,
            pool=snapshot.pool,
            model=snapshot.model,
            objective=snapshot.objective,
            criticality=snapshot.criticality,
            endpoint="" if snapshot.endpoint is None else str(snapshot.endpoint),
            endpoint_name=snapshot.endpoint_name,
            ended_at=self._unix_clock(),
            duration_s=max(0.0, snapshot.age_s),
            arrival_s=max(0.0, arrival_s) if is_decided else None,
            waited_s=max(0.0, snapshot.waited_s),
            place=wait.place,
            place_of=wait.place_of,
            place_after_s=wait.place_after_s,
            waits=wait.reasons(snapshot.waited_s),
            wait_note=note,
            server_s=server_s,
            first_token_s=first_token_s,
            is_stream=first_token_s is not None,
            is_cold=lease is not None and lease.is_cold,
            prompt_tokens=prompt,
            cached_tokens=cached,
            generated_tokens=generated,
            seen_s=seen_s,
        )

    def _unix_offset_s(self) -> float:
        return self._unix_clock() - self._clock()

    # The queue

    def _sample(self) -> None:
        pause_s = INTERVAL_S
        try:
            pause_s = self._samples.sample(self._clock())
        except Exception:
            log.exception("sampling the queue failed; it goes on")
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._sample)

    # The file

    async def _save_often(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self._save(self._clock() - SETTLE_S)

    async def _save(self, until: float) -> None:
        """Write those that ended until then. What cannot be written stays until it can, or until
        there are too many."""
        file = self._file
        assert file is not None
        while batch := self._take(until):
            offset_s = self._unix_offset_s()
            records = [record_of(record, wait, offset_s) for record, wait in batch]
            try:
                await self._in_thread(lambda: file.write(records))  # noqa: B023 - it is awaited
            except OSError as error:
                self._unsaved.extendleft(reversed(batch))
                self._set_problem(f"{self._path} cannot be written: {error.strerror or error}")
                return
            self._set_problem("")

    def _take(self, until: float) -> list[tuple[ExchangeRecord, SampledWait | None]]:
        """The next ones to write, up to `MAX_BATCH`."""
        found: list[tuple[ExchangeRecord, SampledWait | None]] = []
        while self._unsaved and len(found) < MAX_BATCH:
            record, _ = self._unsaved[0]
            if record.ended_at > until:
                break
            found.append(self._unsaved.popleft())
        return found

    async def _read_file(
        self,
        may_be: Callable[[bytes], bool],
        since: float,
        is_wanted: Callable[[RequestRecord], bool],
        limit: int,
    ) -> list[RequestRecord]:
        """The newest `limit` of the file that are wanted and ended since then, newest first."""
        file = self._file
        assert file is not None

        def read() -> list[RequestRecord]:
            found: dict[str, RequestRecord] = {}  # what failed in the middle is written twice
            for record in file.newest_first(may_be, since):
                if is_wanted(record):
                    found.setdefault(record.exchange_id, record)
                    if len(found) >= limit:
                        break
            return list(found.values())

        return await self._in_thread(read)

    def _in_thread(self, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("%s; ended requests are kept in memory until it can", problem)
        elif self._problem and not problem:
            lost = f"; {self._lost} were lost" if self._lost else ""
            log.info("ended requests are written to %s again%s", self._path, lost)
            self._lost = 0
        self._problem = problem


def _is_older(selection: Selection, until: float, record: RequestRecord) -> bool:
    return record.ended_at < until and selection.takes_record(record)


def _run(exchange_id: str, endpoint: str, began_at: float, ended_at: float) -> Run:
    return Run(exchange_id=exchange_id, endpoint=endpoint, began_at=began_at, ended_at=ended_at)
