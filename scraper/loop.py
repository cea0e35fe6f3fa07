"""The scraper's loop: one task for each endpoint."""

from __future__ import annotations

import asyncio
import random as random_numbers
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from scraper.options import ScraperOptions
from scraper.probe import issues
from scraper.probe.endpoint_probe import EndpointProbe
from scraper.probe.issue_log import IssueLog
from scraper.schedule import Schedule, ScrapePriority
from scraper.target import EndpointTarget


@dataclass(slots=True, kw_only=True, eq=False)
class _Watch:
    target: EndpointTarget
    lookout: EndpointProbe
    poked: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Scraper:
    """Turns servers into observations. Use it from one event loop; end it with `aclose`.

    `sink` takes each observation, synchronously and soon. `attention` says how much the
    ledger cares about an endpoint; it is asked before and after each look. An exception of
    either, or of a look, is logged when it begins and harms no other endpoint.
    """

    def __init__(
        self,
        *,
        sink: Callable[[Observation], None],
        attention: Callable[[Address], ScrapePriority] = lambda _: ScrapePriority.IDLE,
        options: ScraperOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        self._sink = sink
        self._attention = attention
        self._options = options or ScraperOptions()
        self._clock = clock
        self._random = random
        self._watches: dict[Address, _Watch] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def targets(self) -> tuple[EndpointTarget, ...]:
        """The scraped targets."""
        return tuple(watch.target for watch in self._watches.values())

    def watch(self, target: EndpointTarget) -> None:
        """Look at `target` from now on, at once for the first time. Does not block.

        A target that is watched already stays as it is; another target at the same address
        replaces it. Raises `RuntimeError` after `aclose`, and `OSError` when no certificates
        can be read for a TLS endpoint.
        """
        if self._is_closed:
            raise RuntimeError("the scraper is closed")
        known = self._watches.get(target.address)
        if known is not None and known.target == target:
            return
        lookout = EndpointProbe(target, self._options, self._clock)
        self.forget(target.address)
        watch = _Watch(target=target, lookout=lookout)
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
        """Look at `address` now. Pokes coalesce: any number of them is one more look.

        A poke in the middle of a look is followed by another look, which begins after it.
        """
        watch = self._watches.get(address)
        if watch is not None:
            watch.poked.set()

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
        journal = IssueLog(address)
        lookout = watch.lookout
        try:
            while True:
                watch.poked.clear()
                observation = await self._look(lookout, address, journal)
                journal.record(observation)
                self._tell(observation, journal)
                attention = self._attention_to(address, journal)
                delay_s = schedule.next_delay_s(self._clock(), observation, attention)
                await self._pause(watch, delay_s)
        finally:
            await lookout.aclose()

    async def _look(
        self, lookout: EndpointProbe, address: Address, journal: IssueLog
    ) -> Observation:
        attention = self._attention_to(address, journal)
        began_at = self._clock()
        try:
            observation = await lookout.scrape(attention)
        except Exception as error:  # noqa: BLE001 - a bug met at one endpoint must stay there
            journal.crash("the scrape", error)
            return Observation(
                address=address,
                began_at=began_at,
                answered_at=self._clock(),
                status=ScrapeStatus.FAILED,
                issues=(issues.internal_error(type(error).__name__),),
            )
        journal.recover("the scrape")
        return observation

    def _tell(self, observation: Observation, journal: IssueLog) -> None:
        try:
            self._sink(observation)
        except Exception as error:  # noqa: BLE001 - the caller's bug must not stop the looks
            journal.crash("the observation callback", error)
        else:
            journal.recover("the observation callback")

    def _attention_to(self, address: Address, journal: IssueLog) -> ScrapePriority:
        try:
            attention = self._attention(address)
        except Exception as error:  # noqa: BLE001 - the caller's bug must not stop the looks
            journal.crash("the scrape-priority callback", error)
            return ScrapePriority.IDLE
        journal.recover("the scrape-priority callback")
        return attention

    async def _pause(self, watch: _Watch, delay_s: float) -> None:
        """Wait for the next scrape or for `scrape_now`; at least the minimum gap."""
        gap_s = min(self._options.scrape_gap_s, delay_s)
        await asyncio.sleep(gap_s)
        try:
            async with asyncio.timeout(delay_s - gap_s):
                await watch.poked.wait()
        except TimeoutError:
            pass
