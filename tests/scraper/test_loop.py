"""The loop over endpoints: started, stopped, poked and closed while servers come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from extproc.runners.probe import ScrapePriority
from extproc.runners.target import EndpointTarget
from scraper import loop
from scraper.loop import Scraper
from scraper.schedule import Cadence
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.no_descriptors import no_descriptors
from tests.fakes.patience import PATIENT_SCRAPES
from tests.fakes.picker import until

QUICK = replace(PATIENT_SCRAPES, cadence=Cadence(fast_s=0.005, slow_s=0.01), scrape_gap_s=0.001)
RARE = replace(QUICK, cadence=Cadence(fast_s=3_600.0, slow_s=3_600.0))


class Sink:
    """Keeps what it is told and lets a test wait for what it wants to see."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []
        self._changed = asyncio.Event()

    def __call__(self, observation: Observation) -> None:
        self.seen.append(observation)
        self._changed.set()

    async def saw(self, is_wanted: Callable[[Observation], bool], after: int = 0) -> Observation:
        while True:
            for observation in self.seen[after:]:
                if is_wanted(observation):
                    return observation
            self._changed.clear()
            await self._changed.wait()


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlamaServer]:
    async with FakeLlamaServer() as server:
        yield server


@pytest.fixture
def sink() -> Sink:
    return Sink()


def target(fake: FakeLlamaServer) -> EndpointTarget:
    return EndpointTarget(address=fake.address, may_sleep=False)


async def test_what_we_cannot_do_is_no_observation(
    fake: FakeLlamaServer,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without descriptors nothing is said of the server, but of us, once; later all goes on."""
    monkeypatch.setattr(loop, "OWN_FAULT_PAUSE_S", 0.001)
    caplog.set_level(logging.INFO, "coxswain.scraper")
    fake.closes_after = 1
    scraper = Scraper(sink=sink, options=QUICK)
    scraper.watch(target(fake))
    await sink.saw(lambda observation: observation.status is ScrapeStatus.READY)
    assert scraper.problems == ()
    with no_descriptors():
        await until(lambda: bool(scraper.problems))
        problem = "".join(scraper.problems)
        assert "too many open files" in problem and "LimitNOFILE" in problem
        seen = len(sink.seen)
    await sink.saw(lambda observation: observation.status is ScrapeStatus.READY, after=seen)
    await until(lambda: not scraper.problems)
    await scraper.aclose()
    assert {each.status for each in sink.seen} == {ScrapeStatus.READY}
    assert not any(each.issues for each in sink.seen)
    assert caplog.text.count("cannot be scraped") == caplog.text.count("scraped again") == 1


async def test_it_scrapes_again_and_again(fake: FakeLlamaServer, sink: Sink) -> None:
    scraper = Scraper(sink=sink, options=QUICK)
    scraper.watch(target(fake))
    await sink.saw(lambda o: o.busy_slots == 0)
    fake.busy = (True, True, True)
    await sink.saw(lambda o: o.busy_slots == 3 and o.slots == 3)
    await scraper.aclose()


async def test_a_server_that_dies_and_comes_back_is_followed(
    fake: FakeLlamaServer, sink: Sink
) -> None:
    scraper = Scraper(sink=sink, options=QUICK)
    scraper.watch(target(fake))
    await sink.saw(lambda o: o.status is ScrapeStatus.READY)
    await fake.stop()
    await sink.saw(lambda o: o.status is ScrapeStatus.UNREACHABLE)
    async with FakeLlamaServer(busy=(True,), port=fake.address.port) as other:
        other.is_loading = True
        await sink.saw(lambda o: o.status is ScrapeStatus.LOADING)
        other.is_loading = False
        await sink.saw(lambda o: o.status is ScrapeStatus.READY and o.slots == 1)
        await scraper.aclose()


async def test_an_immediate_scrape_is_a_scrape_now_and_many_are_one(
    fake: FakeLlamaServer, sink: Sink
) -> None:
    scraper = Scraper(sink=sink, options=RARE)
    scraper.watch(target(fake))
    await sink.saw(lambda o: o.status is ScrapeStatus.READY)
    for _ in range(100):
        scraper.scrape_now(fake.address)
    await fake.was_asked("/slots", times=2)
    await sink.saw(lambda _: True, after=1)
    assert fake.count("/slots") == 2
    scraper.scrape_now(Address("127.0.0.1", 1))  # not watched: nothing happens
    await scraper.aclose()


async def test_an_immediate_scrape_in_the_middle_of_a_scrape_is_another_scrape(
    fake: FakeLlamaServer, sink: Sink
) -> None:
    gate = asyncio.Event()
    fake.replies["/slots"] = Reply.of([{"is_processing": False}])
    fake.replies["/slots"].gate = gate
    scraper = Scraper(sink=sink, options=RARE)
    scraper.watch(target(fake))
    await fake.was_asked("/slots")
    scraper.scrape_now(fake.address)
    gate.set()
    await fake.was_asked("/slots", times=2)
    await scraper.aclose()


async def test_priority_decides_the_pace(fake: FakeLlamaServer, sink: Sink) -> None:
    options = replace(QUICK, cadence=Cadence(fast_s=0.005, slow_s=3_600.0))
    priority = ScrapePriority.HIGH
    scraper = Scraper(sink=sink, options=options, priority=lambda _: priority)
    scraper.watch(target(fake))
    await fake.was_asked("/slots", times=5)
    await scraper.aclose()


async def test_nothing_is_observed_after_forgetting(fake: FakeLlamaServer, sink: Sink) -> None:
    async with FakeLlamaServer() as other:
        scraper = Scraper(sink=sink, options=QUICK)
        scraper.watch(target(fake))
        scraper.watch(target(other))
        await sink.saw(lambda o: o.address == fake.address)
        scraper.forget(fake.address)
        scraper.forget(fake.address)
        told = len(sink.seen)
        await other.was_asked("/slots", times=other.count("/slots") + 5)
        assert all(o.address == other.address for o in sink.seen[told:])
        assert [t.address for t in scraper.targets] == [other.address]
        await scraper.aclose()


async def test_the_same_target_is_kept_and_another_one_replaces_it(
    fake: FakeLlamaServer, sink: Sink
) -> None:
    fake.api_key = "sesame"
    scraper = Scraper(sink=sink, options=RARE)
    scraper.watch(target(fake))
    scraper.watch(target(fake))
    await sink.saw(lambda o: bool(o.issues))
    assert fake.count("/props") == 1
    scraper.watch(EndpointTarget(address=fake.address, api_key="sesame"))
    await sink.saw(lambda o: o.busy_slots == 0)
    assert len(scraper.targets) == 1
    await scraper.aclose()


async def test_closing_leaves_no_task_and_no_connection(fake: FakeLlamaServer, sink: Sink) -> None:
    before = asyncio.all_tasks()
    async with FakeLlamaServer() as stalled:
        stalled.replies["/slots"] = Reply(gate=asyncio.Event())
        scraper = Scraper(sink=sink, options=QUICK)
        scraper.watch(target(fake))
        scraper.watch(target(stalled))
        scraper.watch(EndpointTarget(address=Address("127.0.0.1", 1)))
        await stalled.was_asked("/slots")
        await sink.saw(lambda o: o.status is ScrapeStatus.READY)
        await scraper.aclose()
        await scraper.aclose()
        left = {task for task in asyncio.all_tasks() - before if "scrape" in task.get_name()}
        assert left == set()
        assert scraper.targets == ()
        with pytest.raises(RuntimeError):
            scraper.watch(target(fake))
        await fake.had_no_connections()
        await stalled.had_no_connections()


async def test_a_sink_that_raises_for_one_endpoint_harms_no_scrape(
    fake: FakeLlamaServer, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "coxswain.scraper")
    async with FakeLlamaServer() as other:

        def take(observation: Observation) -> None:
            if observation.address == fake.address:
                raise ZeroDivisionError
            sink(observation)

        scraper = Scraper(sink=take, options=QUICK)
        scraper.watch(target(fake))
        scraper.watch(target(other))
        await fake.was_asked("/slots", times=5)
        await other.was_asked("/slots", times=5)
        await sink.saw(lambda o: o.status is ScrapeStatus.READY)
        await scraper.aclose()
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1 and errors[0].exc_info is not None


async def test_priority_that_raises_stops_nothing(
    fake: FakeLlamaServer, caplog: pytest.LogCaptureFixture
) -> None:
    def attend(_: Address) -> ScrapePriority:
        raise KeyError("gone")

    scraper = Scraper(sink=lambda _: None, priority=attend, options=QUICK)
    scraper.watch(target(fake))
    await fake.was_asked("/slots", times=5)
    await scraper.aclose()
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


async def test_a_bug_in_a_scrape_is_a_failed_observation(
    fake: FakeLlamaServer, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def explode(*_: object) -> Observation:
        raise ZeroDivisionError

    monkeypatch.setattr("extproc.runners.llama_server.probe.LlamaServerProbe.scrape", explode)
    scraper = Scraper(sink=sink, options=QUICK)
    scraper.watch(target(fake))
    observation = await sink.saw(lambda o: o.status is ScrapeStatus.FAILED, after=3)
    assert [issue.code for issue in observation.issues] == ["scraper-error"]
    await scraper.aclose()
