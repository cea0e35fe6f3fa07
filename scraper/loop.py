"""The scraper's loop: one task for each endpoint."""

import asyncio
import random as random_numbers
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from extproc.runners import issues
from extproc.runners.client import OwnFaultError, never_blocked
from extproc.runners.kinds import open_probe
from extproc.runners.probe import OpenProbe, Probe, ScrapePriority
from extproc.runners.target import EndpointTarget
from scraper.issue_log import IssueLog
from scraper.options import ScraperOptions
from scraper.own_faults import OwnFaults
from scraper.schedule import Schedule
from scraper.turns import Turn, Turns

OWN_FAULT_PAUSE_S = 0.5


@dataclass(slots=True, kw_only=True, eq=False)
class _Watch:
    target: EndpointTarget
    probe: Probe
    is_requested: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    turn: Turn | None = None


class Scraper:
    """Turns servers into observations. Use it from one event loop; end it with `aclose`.

    `sink` receives each observation; it is synchronous and must return quickly. `priority` returns
    the scrape priority of an endpoint; it is called before and after each scrape. An exception of
    either, or of a scrape, is logged when it begins and affects no other endpoint. `lost_s` returns
    for how many seconds since a moment this process was blocked: no server is blamed for those.
    `wants_counters` is called before a scrape of an endpoint, whether to read its counters too.
    `open_probe` makes the probe of an endpoint, of whatever kind its server is.

    A scrape that this process itself could not begin, as it has no descriptors left, is no
    observation: what is known of the endpoint stays, and `problems` says so.
    """

    def __init__(
        self,
        *,
        sink: Callable[[Observation], None],
        priority: Callable[[Address], ScrapePriority] = lambda _: ScrapePriority.IDLE,
        options: ScraperOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_numbers.random,
        lost_s: Callable[[float], float] = never_blocked,
        name_of: Callable[[Address], str] = str,
        wants_counters: Callable[[Address], bool] = lambda _: False,
        open_probe: OpenProbe = open_probe,
    ) -> None:
        self._sink = sink
        self._priority = priority
        self._options = options or ScraperOptions()
        self._clock = clock
        self._random = random
        self._lost_s = lost_s
        self._name_of = name_of
        self._wants_counters = wants_counters
        self._open_probe = open_probe
        self._watches: dict[Address, _Watch] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._own_faults = OwnFaults()
        self._turns = Turns(self._options.pace, clock)

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps this process from scraping, as text; empty if nothing does."""
        return self._own_faults.problems

    @property
    def targets(self) -> tuple[EndpointTarget, ...]:
        """The scraped targets."""
        return tuple(watch.target for watch in self._watches.values())

    def watch(self, target: EndpointTarget) -> None:
        """Scrape `target` from now on, at once for the first time. Does not block.

        A target that is watched already stays as it is; another target at the same address
        replaces it. Raises `RuntimeError` after `aclose`, and `OSError` when no certificates
        can be read for a TLS endpoint.
        """
        if self._is_closed:
            raise RuntimeError("the scraper is closed")
        known = self._watches.get(target.address)
        if known is not None and known.target == target:
            return
        probe = self._open_probe(
            target,
            self._options,
            self._clock,
            lost_s=self._lost_s,
            wants_counters=lambda: self._wants_counters(target.address),
        )
        self.forget(target.address)
        watch = _Watch(target=target, probe=probe)
        self._watches[target.address] = watch
        watch.task = asyncio.create_task(self._run(watch), name=f"scrape {target.address}")

    def forget(self, address: Address) -> None:
        """Stop scraping `address`: no observation of it follows. Does not block."""
        watch = self._watches.pop(address, None)
        if watch is not None and watch.task is not None:
            watch.task.cancel()
            self._ending.add(watch.task)
            watch.task.add_done_callback(self._ending.discard)

    def scrape_now(self, address: Address) -> None:
        """Scrape `address` now. Several calls before that scrape are one.

        A call during a scrape is followed by another scrape, which begins after it.
        """
        watch = self._watches.get(address)
        if watch is not None:
            watch.is_requested.set()
            if watch.turn is not None:
                self._turns.hurry(watch.turn)

    def set_leaving(self, address: Address, models: frozenset[str]) -> None:
        """These models of a router are about to be unloaded: a request for their slots that is
        open then would delay it. No error if `address` is not scraped."""
        watch = self._watches.get(address)
        if watch is not None:
            watch.probe.set_leaving(models)

    async def aclose(self) -> None:
        """Stop scraping, close all connections, and wait for all tasks to end."""
        self._is_closed = True
        for address in tuple(self._watches):
            self.forget(address)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _run(self, watch: _Watch) -> None:
        address = watch.target.address
        schedule = Schedule(self._options.cadence, self._random)
        issue_log = IssueLog(lambda: self._name_of(address), may_be_off=watch.target.may_be_off)
        probe = watch.probe
        try:
            while True:
                await self._take_turn(watch, issue_log)
                watch.is_requested.clear()
                try:
                    observation = await self._scrape(probe, address, issue_log)
                except OwnFaultError as error:
                    self._own_faults.began(address, str(error))
                    await asyncio.sleep(OWN_FAULT_PAUSE_S)
                    continue
                self._own_faults.is_over(address)
                issue_log.record(observation)
                # A bug of a callback must not stop the scrapes.
                with suppress(Exception), issue_log.watch("the observation callback"):
                    self._sink(observation)
                priority = self._priority_of(address, issue_log)
                delay_s = schedule.next_delay_s(self._clock(), observation, priority)
                await self._pause(watch, delay_s)
        finally:
            self._own_faults.is_over(address)
            await probe.aclose()

    async def _take_turn(self, watch: _Watch, issue_log: IssueLog) -> None:
        is_urgent = watch.is_requested.is_set() or (
            self._priority_of(watch.target.address, issue_log) is ScrapePriority.HIGH
        )
        watch.turn = self._turns.ask(is_urgent=is_urgent)
        await watch.turn
        watch.turn = None

    async def _scrape(self, probe: Probe, address: Address, issue_log: IssueLog) -> Observation:
        priority = self._priority_of(address, issue_log)
        began_at = self._clock()
        try:
            with issue_log.watch("the scrape"):
                return await probe.scrape(priority)
        except OwnFaultError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug must not affect other endpoints
            return Observation(
                address=address,
                began_at=began_at,
                answered_at=self._clock(),
                status=ScrapeStatus.FAILED,
                issues=(issues.internal_error(type(error).__name__),),
            )

    def _priority_of(self, address: Address, issue_log: IssueLog) -> ScrapePriority:
        with suppress(Exception), issue_log.watch("the scrape-priority callback"):
            return self._priority(address)
        return ScrapePriority.IDLE

    async def _pause(self, watch: _Watch, delay_s: float) -> None:
        """Wait for the next scrape or for `scrape_now`; at least the minimum gap."""
        gap_s = min(self._options.scrape_gap_s, delay_s)
        await asyncio.sleep(gap_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s - gap_s):
                await watch.is_requested.wait()
