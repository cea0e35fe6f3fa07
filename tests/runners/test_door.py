"""Claims about extproc/runners/probe.py: the rest of the picker serves a kind of server that shows
less than llama-server, and never asks which kind it is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.events import ScrapeRequested, Settled
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import LeaseEnd
from extproc.core.slots.ledger import DrainingCaps
from extproc.runners.client import Answer, RunnerClient
from extproc.runners.probe import Probe, ProbeOptions, ScrapePriority
from extproc.runners.target import EndpointTarget
from scraper.loop import Scraper
from scraper.options import ScraperOptions
from scraper.schedule import Cadence
from tests.fakes.patience import PATIENT
from tests.fakes.picker import until

NEVER_S = 3600.0
SCRAPES = 10
"""Enough of them to prove whatever they can."""


class TinyServer:
    """Shows two numbers, and nothing else: how many requests run, of how many."""

    def __init__(self) -> None:
        self.running, self.most = 0, 2
        self.port = 0

    async def __aenter__(self) -> TinyServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            while await reader.readline() not in (b"", b"\r\n"):
                pass
            body = json.dumps([self.running, self.most]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        writer.close()


class TinyProbe:
    """All that this kind needs: the picker has no line about it."""

    def __init__(
        self,
        target: EndpointTarget,
        options: ProbeOptions,
        clock: Callable[[], float],
        *,
        lost_s: Callable[[float], float],
        wants_counters: Callable[[], bool],
    ) -> None:
        self._target = target
        self._client = RunnerClient(target, options.timeouts, clock, lost_s)

    async def scrape(self, priority: ScrapePriority) -> Observation:
        answer = await self._client.ask("/load")
        assert isinstance(answer, Answer)
        running, most = json.loads(answer.body)
        return Observation(
            address=self._target.address,
            began_at=answer.began_at,
            answered_at=answer.answered_at,
            status=ScrapeStatus.READY,
            slots=most,
            busy_slots=running,
        )

    def set_leaving(self, models: frozenset[str]) -> None:
        pass

    async def aclose(self) -> None:
        await self._client.aclose()


class Kit:
    """A picker without Envoy, which scrapes the tiny server."""

    def __init__(self, server: TinyServer) -> None:
        self.server = server
        self.target = EndpointTarget(address=Address.of("127.0.0.1", server.port))
        self.address = self.target.address
        caps = DrainingCaps(reported_s=NEVER_S, blind_s=NEVER_S)  # only scrapes prove anything
        self.dispatcher = Dispatcher(Random(1), DispatcherOptions(draining_caps=caps))
        self.dispatcher.on_events(self._take)
        self.settled: list[Settled] = []
        self.scrapes = 0
        self.scraper = Scraper(
            sink=self._observe,
            priority=lambda _: ScrapePriority.HIGH,
            options=ScraperOptions(cadence=Cadence(fast_s=0.02, slow_s=0.05), timeouts=PATIENT),
            open_probe=TinyProbe,
        )
        self.dispatcher.set_members("test", [EndpointSpec(address=self.address)], time.monotonic())
        self.dispatcher.set_routable(self.address, True, time.monotonic())
        self.scraper.watch(self.target)

    def _observe(self, observation: Observation) -> None:
        self.dispatcher.observe(observation, time.monotonic())
        self.scrapes += 1

    def _take(self) -> None:
        for event in self.dispatcher.take_events():
            if isinstance(event, Settled):
                self.settled.append(event)
            elif isinstance(event, ScrapeRequested):
                self.scraper.scrape_now(event.address)

    def submit(self, name: str) -> object:
        return self.dispatcher.submit(Request(id=name, timeout_s=NEVER_S), time.monotonic())

    async def until_free(self, slots: int) -> None:
        await until(lambda: self.dispatcher.view.slots_at(self.address).free_slots == slots)


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    async with TinyServer() as server:
        kit = Kit(server)
        yield kit
        await kit.scraper.aclose()


async def test_its_slots_are_leased_and_the_next_request_is_queued(kit: Kit) -> None:
    await kit.until_free(2)
    first, second, third = map(kit.submit, ("first", "second", "third"))
    assert isinstance(first, Picked)
    assert isinstance(second, Picked)
    assert isinstance(third, Queued)
    kit.dispatcher.release(first.lease, LeaseEnd.SERVED, time.monotonic())
    assert len(kit.settled) == 1, "a released slot goes to the queued request in the same call"


async def test_what_others_use_counts_as_foreign(kit: Kit) -> None:
    await kit.until_free(2)
    kit.server.running = 1
    await kit.until_free(1)
    assert kit.dispatcher.view.slots_at(kit.address).foreign_slots == 1


async def test_a_client_that_left_holds_its_slot_until_the_count_falls(kit: Kit) -> None:
    """Without numbers of tasks, and without a cap."""
    await kit.until_free(2)
    picked = kit.submit("left")
    assert isinstance(picked, Picked)
    kit.server.running = 1
    kit.dispatcher.release(picked.lease, LeaseEnd.ABANDONED, time.monotonic())
    before = kit.scrapes
    await until(lambda: kit.scrapes >= before + SCRAPES)
    assert kit.dispatcher.view.slots_at(kit.address).free_slots == 1
    kit.server.running = 0
    await kit.until_free(2)


def test_a_probe_is_what_the_scraper_takes() -> None:
    """Types, checked as the rest of the code is: this would not pass mypy otherwise."""
    opened: Callable[..., Probe] = TinyProbe
    assert opened is TinyProbe
