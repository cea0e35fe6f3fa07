"""Runs the count of usage: the meter on the event loop, the file in a thread of its own."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from extproc.core.address import Address
from extproc.core.client_limits import ClientLimits
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry, ExchangeState
from extproc.core.observation import Observation
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.telemetry.endpoint_counts import model_of
from extproc.transport.call import ServeCall
from extproc.usage.answer_tail import AnswerTail, TokenUsage
from extproc.usage.counts import Tally, UsageCounts, UsageKey
from extproc.usage.meter import ReadResponse, UsageMeter
from extproc.usage.response_stream import with_responses
from extproc.usage.store import (
    DamagedError,
    UsageError,
    UsageRow,
    UsageStore,
    rows_of,
    set_aside,
)

STEP_S: Final = 0.5
"""How often requests whose clients left are settled, and counts saved."""
PRUNE_S: Final = 3600.0
RETRY_S: Final = 5.0
"""The pause before a file that could not be opened is tried again."""
DAY_S: Final = 86_400
BY_CLIENT: Final = ("client",)
MAX_CLIENTS: Final = 1_000_000
"""More than a keys file has room for."""
UNREAD: Final = 10
"""This number of served requests without a response is no accident."""
HAVE_SLOT: Final = frozenset({ExchangeState.RUNNING, ExchangeState.RESPONDING})

ResultT = TypeVar("ResultT")

log = logging.getLogger("coxswain.usage")


class OpenLeases:
    """The running requests, as the dispatcher and the registry know them."""

    def __init__(self, dispatcher: Dispatcher, registry: ExchangeRegistry) -> None:
        self._dispatcher = dispatcher
        self._registry = registry

    def foreign_slots(self, address: Address) -> int:
        """How many slots somebody else uses."""
        return self._dispatcher.view.slots_at(address).foreign_slots

    def is_draining(self, address: Address) -> bool:
        """Whether the server may still work for a client that left."""
        return self._dispatcher.view.slots_at(address).has_draining

    def running(self, address: Address, since: float, until: float) -> int | None:
        """How many requests ran there from `since` until now; not counting those that got their
        slot at `until` or later. O(requests)."""
        leases = [
            lease
            for lease in self._dispatcher.view.slots_at(address).leases.values()
            if lease.opened_at < until
        ]
        for lease in leases:
            if lease.left_at is not None or lease.asked_slots != 1 or lease.opened_at >= since:
                return None
        now = time.monotonic()
        for exchange in self._registry:
            if exchange.lease is None and exchange.ticket is None:
                snapshot = exchange.snapshot(now)
                if snapshot.endpoint == address and snapshot.state in HAVE_SLOT:
                    return None  # its server is done, and its response on its way
        return len(leases)


class Usage:
    """Counts for one picker from `start` to `aclose`. A request never waits for the file."""

    def __init__(
        self,
        path: Path,
        keep_days: int,
        dispatcher: Dispatcher,
        registry: ExchangeRegistry,
        limits: ClientLimits,
        scrape: Callable[[Address], None] | None = None,
    ) -> None:
        """`limits` hear of the tokens of each client. With `scrape`, which requests a scrape now,
        counts are reconciled with the servers' counters."""
        self._path = path
        self._keep_s = keep_days * DAY_S
        self._dispatcher = dispatcher
        self._fleet = dispatcher.fleet
        self._catalog = dispatcher.resolver.names.catalog
        self._registry = registry
        self._tally = Tally()
        self._limits = limits
        self._scrape = scrape
        self.meter = UsageMeter(
            self._tally,
            time.monotonic,
            time.time,
            self._model_of,
            self._counted,
            None if scrape is None else OpenLeases(dispatcher, registry),
            self._overflowed,
        )
        self._store: UsageStore | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage")
        self._saving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._problem = ""
        self._notice = ""
        self._is_damaged = False
        self._retry_at = 0.0

    def start(self) -> None:
        """Open the file, which may block for a moment, and count. One that cannot be used is a
        problem, and tried again."""
        self._open()
        self._task = asyncio.create_task(self._run(), name="count usage")

    async def aclose(self) -> None:
        """Count what is left by what is known, save it, and close the file."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            self.meter.advance(is_last=True)
            self._retry_at = 0.0
            await self._save()
            if unsaved := sum(counts.requests for counts in self._tally.unsaved().values()):
                log.error("the usage of %d requests was not saved", unsaved)
        if self._store is not None:
            await self._close(self._store)
        self._thread.shutdown(wait=False)

    def _in_thread(
        self, work: Callable[..., ResultT], *arguments: object
    ) -> asyncio.Future[ResultT]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def serve(self, serve: ServeCall) -> ServeCall:
        """Serve the streams of responses beside those of `serve`."""
        return with_responses(serve, self.meter, self._is_known)

    def take_response(self, response: ReadResponse) -> None:
        """A front has read a response. Never raises."""
        exchange_id, is_whole, events, is_overflow = response[:4]
        try:
            if self._is_known(exchange_id):
                tail = AnswerTail(TokenUsage(*response[4:]), events, was_overflow=is_overflow)
                self.meter.add_read(exchange_id, tail, is_whole=is_whole)
        except Exception:
            log.exception("counting the response of exchange %s failed", exchange_id)

    def record(self, record: ExchangeRecord) -> None:
        """An exchange ended. Never raises."""
        try:
            self.meter.record(record)
        except Exception:
            log.exception("counting exchange %s failed", record.exchange_id)

    def observe(self, observation: Observation) -> None:
        """An endpoint was scraped. Never raises."""
        try:
            if self.meter.observe(observation) and self._scrape is not None:
                self._scrape(observation.address)
        except Exception:
            log.exception("counting by the slots of %s failed", observation.address)

    def wants_counters(self, address: Address) -> bool:
        """Whether the scrape that begins now reads the server's counters."""
        return self.meter.wants_counters(address)

    def since_start(self) -> Mapping[UsageKey, UsageCounts]:
        """The sums since the start, for metrics."""
        return self._tally.since_start()

    async def read(self, since: float, by: Collection[str], limit: int) -> list[UsageRow]:
        """The sums since this Unix time, in whole hours, with what was counted until now. Raises
        `UsageError`."""
        await self._save()
        store = self._store
        if store is None:  # what is in memory is all there is
            return rows_of(self._tally.unsaved(), since, by, limit)
        return await self._in_thread(store.read, since, by, limit)

    async def by_client(self, *since: float) -> list[Mapping[str, UsageCounts]]:
        """The sums of each client since each of these Unix times, in whole hours. They are exact:
        nothing that was counted here until the return is missing, or in them twice. Raises
        `UsageError`."""
        async with self._saving:  # nothing is on its way into the file meanwhile
            saved: list[list[UsageRow]] = [[] for _ in since]
            if (store := self._store) is not None:
                saved = [
                    await self._in_thread(store.read, start, BY_CLIENT, MAX_CLIENTS)
                    for start in since
                ]
            sums: list[Mapping[str, UsageCounts]] = []
            for start, rows in zip(since, saved, strict=True):
                found: dict[str, UsageCounts] = {}
                for row in (*rows, *rows_of(self._tally.unsaved(), start, BY_CLIENT, MAX_CLIENTS)):
                    found.setdefault(row.key.client, UsageCounts()).add(row.counts)
                sums.append(found)
        return sums

    async def hours(self, since: float) -> Mapping[str, Mapping[int, int]]:
        """The tokens of each client by the Unix time at which an hour began, since this one. Raises
        `UsageError`."""
        async with self._saving:
            store = self._store
            found = {} if store is None else await self._in_thread(store.hours, since)
            for (hour, key), counts in self._tally.unsaved().items():
                if hour >= since:
                    of_client = found.setdefault(key.client, {})
                    tokens = counts.prompt_tokens + counts.generated_tokens
                    of_client[hour] = of_client.get(hour, 0) + tokens
        return found

    def file_problems(self) -> tuple[str, ...]:
        """What is or was wrong with the file, as text for operators; empty without a problem."""
        return tuple(each for each in (self._problem, self._notice) if each)

    def problems(self) -> tuple[str, ...]:
        """What else is wrong, as text for operators; empty without a problem."""
        found = []
        if self.meter.unread >= UNREAD:
            found.append(
                f"{self.meter.unread} responses did not come to the picker, so their tokens were "
                "counted from /slots or not at all: print Envoy's configuration again with "
                "usage.path set (`coxswain config envoy`), and restart Envoy with it"
            )
        return tuple(found)

    async def _run(self) -> None:
        pruned_at = float("-inf")
        while True:
            await asyncio.sleep(STEP_S)
            try:
                self.meter.advance()
                self.meter.keep_servers(frozenset(each.address for each in self._fleet))
                if self._scrape is not None:
                    for address in self.meter.to_scrape():
                        self._scrape(address)
                await self._save()
                if time.monotonic() > pruned_at + PRUNE_S:
                    pruned_at = time.monotonic()
                    await self._prune()
            except Exception:
                log.exception("counting usage failed; it goes on")

    def _open(self) -> None:
        """Open what stands at the path; blocks on the disk. A damaged file is set aside."""
        try:
            try:
                if self._is_damaged:
                    raise DamagedError(f"{self._path} is damaged")
                self._store = UsageStore(self._path)
            except DamagedError as error:
                aside = set_aside(self._path)
                self._is_damaged = False
                self._note(f"{error}: it is now {aside}")
                self._store = UsageStore(self._path)
        except UsageError as error:
            self._retry_at = time.monotonic() + RETRY_S
            self._set_problem(str(error))
        else:
            self._set_problem("")

    async def _opened(self) -> UsageStore | None:
        """The file that stands at the path; None while it cannot be used. One that is damaged or
        was moved away is followed by a new one."""
        store = self._store
        if store is not None and not await self._in_thread(store.is_in_place):
            self._note(f"{self._path} was moved away or removed while it was in use")
            await self._close(store)
        if self._store is None and time.monotonic() >= self._retry_at:
            await self._in_thread(self._open)
        return self._store

    async def _close(self, store: UsageStore) -> None:
        self._store = None
        await self._in_thread(store.close)

    async def _save(self) -> None:
        async with self._saving:
            store = await self._opened()
            taken = self._tally.take()
            if not taken or store is None:
                self._tally.put_back(taken)
                return
            saving = self._in_thread(store.add, taken)
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:
                await asyncio.wait({saving})  # it is saved or it is not: nothing counts twice
                if saving.exception() is not None:
                    self._tally.put_back(taken)
                raise
            except UsageError as error:
                self._tally.put_back(taken)
                self._set_problem(str(error))
                if isinstance(error, DamagedError):  # the next time it is set aside
                    self._is_damaged = True
                    await self._close(store)
            else:
                self._set_problem("")

    async def _prune(self) -> None:
        store = self._store
        if store is not None:
            try:
                await self._in_thread(store.forget_before, time.time() - self._keep_s)
            except UsageError as error:
                log.warning("%s", error)

    def _note(self, notice: str) -> None:
        """Say what has happened, for as long as this process runs: older counts are elsewhere."""
        self._notice = f"{notice}; counting goes on in a new file"
        log.error("%s", self._notice)

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("%s; the counts are kept in memory until it can", problem)
        elif self._problem and not problem:
            log.info("usage is saved in %s again", self._path)
        self._problem = problem

    def _is_known(self, exchange_id: str) -> bool:
        return self._registry.get(exchange_id) is not None or self.meter.is_awaited(exchange_id)

    def _overflowed(self, exchange_id: str, record: ExchangeRecord | None) -> None:
        """Before or behind the end of its exchange, which Envoy reports on another stream."""
        exchange = self._registry.get(exchange_id)
        now = time.monotonic()
        if exchange is not None and exchange.lease is not None:
            self._dispatcher.overflow_read(exchange.lease.address, exchange.lease.model, now)
        elif record is not None and record.endpoint is not None:
            self._dispatcher.overflow_read(record.endpoint, record.model, now)

    def _counted(self, record: ExchangeRecord, counts: UsageCounts) -> None:
        if record.client:
            tokens = counts.prompt_tokens + counts.generated_tokens
            self._limits.spent(
                record.client, tokens, time.monotonic(), counts.cost, record.exchange_id
            )

    def _model_of(self, record: ExchangeRecord) -> str:
        """The fleet's name: never a client's text, of which there may be any number."""
        endpoint = None if record.endpoint is None else self._fleet.get(record.endpoint)
        if endpoint is not None:
            return model_of(endpoint, record.model)
        return self._catalog.model_named(record.model)
