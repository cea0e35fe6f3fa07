"""The scraper against the real llama-server: what the fake claims must be so."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import free_port
from extproc.demo.process import Child, Children
from extproc.runners.probe import ScrapePriority, SleepTrial
from extproc.runners.target import EndpointTarget
from scraper.loop import Scraper
from scraper.options import ScraperOptions
from scraper.schedule import Cadence
from tests.fakes.patience import PATIENT

LLAMA_SERVER = find_llama_server()
pytestmark = [
    pytest.mark.llama,
    pytest.mark.skipif(LLAMA_SERVER is None, reason="no llama-server was found or built"),
]
PATIENCE_S = 40.0
OPTIONS = ScraperOptions(
    cadence=Cadence(fast_s=0.02, slow_s=0.05),
    sleep_trial=SleepTrial(linger_s=0.3, trial_s=600.0),
    # A server that falls asleep as it is asked for /slots answers when somebody wakes it.
    timeouts=replace(PATIENT, slots_read_s=10.0),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in ("alpha", "beta"):
        write_model(folder / f"{name}.gguf", name=name)
    return folder


class Water:
    """Servers, and one scraper that scrapes them."""

    def __init__(self, children: Children) -> None:
        self.seen: list[Observation] = []
        self.priority = ScrapePriority.IDLE
        self.scraper = Scraper(sink=self._take, options=OPTIONS, priority=lambda _: self.priority)
        self._children = children
        self._changed = asyncio.Event()

    def _take(self, observation: Observation) -> None:
        self.seen.append(observation)
        self._changed.set()

    async def start(self, port: int, *arguments: str | Path) -> Child:
        assert LLAMA_SERVER is not None
        command = [LLAMA_SERVER, "--host", "127.0.0.1", "--port", str(port), *arguments]
        # Several threads wait for each other by spinning, which crawls on a busy machine.
        command += ["--threads", "1", "--ctx-size", "8192"]
        return await self._children.start(f"llama-{port}-{len(self.seen)}", command)

    async def saw(self, is_wanted: Callable[[Observation], bool], after: int = 0) -> Observation:
        checked = after
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    for observation in self.seen[checked:]:
                        if is_wanted(observation):
                            return observation
                    checked = len(self.seen)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pytest.fail(f"last seen, of {len(self.seen)}: {self.seen[-3:]}")


@pytest.fixture
async def water(tmp_path: Path) -> AsyncIterator[Water]:
    async with Children(tmp_path) as children:
        water = Water(children)
        yield water
        await water.scraper.aclose()


def target(port: int, **more: object) -> EndpointTarget:
    return EndpointTarget(address=Address("127.0.0.1", port), **more)  # type: ignore[arg-type]


async def complete(port: int, tokens: int, model: str | None = None) -> int:
    """A request straight to the server, past Coxswain; its status."""
    body = {"prompt": "row", "n_predict": tokens, "ignore_eos": True}
    if model is not None:
        body["model"] = model
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(f"http://127.0.0.1:{port}/completion", json=body)
    return response.status_code


@asynccontextmanager
async def at_work(port: int, model: str | None = None) -> AsyncIterator[None]:
    """Somebody has the server write, past Coxswain, until the block is over, however late a scrape
    at it is; then he hangs up."""
    body = {"prompt": "row", "n_predict": -1, "ignore_eos": True, "stream": True}
    if model is not None:
        body["model"] = model

    async def work() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            while True:
                url = f"http://127.0.0.1:{port}/completion"
                async with client.stream("POST", url, json=body) as response:
                    assert response.status_code == 200
                    async for _ in response.aiter_raw():
                        pass

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.wait({working})
    assert working.cancelled(), working.exception()


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Who opens the file waits until the block is over, by a lease of the kernel (fcntl(2)).

    Some file systems grant none; then a loading that is over at once may be missed.
    """
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # tells that somebody wants to
    lease = os.open(file, os.O_RDWR)
    try:
        with suppress(OSError):
            fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(lease)
        signal.signal(signal.SIGIO, before)


def is_idle(observation: Observation) -> bool:
    return observation.status is ScrapeStatus.READY and observation.busy_slots == 0


async def test_a_server_comes_up_works_is_killed_and_replaced_on_its_port(
    water: Water, models: Path, tmp_path: Path
) -> None:
    large = tmp_path / "large.gguf"
    write_model(large, ModelShape(embedding=512, layers=8))
    port = free_port()
    water.scraper.watch(target(port))
    await water.saw(lambda o: o.status is ScrapeStatus.UNREACHABLE)
    with held(large):
        server = await water.start(port, "-m", large, "-np", "2", "--alias", "crew,eight")
        await water.saw(lambda o: o.status is ScrapeStatus.LOADING)
    ready = await water.saw(is_idle)
    assert ready.slots == 2 and ready.issues == ()
    assert {ready.models[0].name, *ready.models[0].aliases} == {"crew", "eight"}

    water.priority = ScrapePriority.STEADY
    async with at_work(port):
        await water.saw(lambda o: o.busy_slots == 1)
    await water.saw(is_idle, after=len(water.seen))

    server.kill()
    await server.wait()
    await water.saw(lambda o: o.status is ScrapeStatus.UNREACHABLE, after=len(water.seen))
    await water.start(port, "-m", models / "alpha.gguf", "-np", "3")
    back = await water.saw(is_idle, after=len(water.seen))
    assert back.slots == 3
    assert back.instance != ready.instance


async def test_slots_that_are_switched_off_are_named(water: Water, models: Path) -> None:
    port = free_port()
    water.scraper.watch(target(port))
    await water.start(port, "-m", models / "alpha.gguf", "-np", "2", "--no-slots")
    ready = await water.saw(lambda o: o.status is ScrapeStatus.READY)
    assert (ready.slots, ready.busy_slots) == (2, None)
    assert [issue.code for issue in ready.issues] == ["slots-disabled"]


async def test_a_key_is_wanted_and_given(water: Water, models: Path) -> None:
    port = free_port()
    water.scraper.watch(target(port))
    await water.start(port, "-m", models / "alpha.gguf", "-np", "2", "--api-key", "sesame")
    ready = await water.saw(lambda o: o.status is ScrapeStatus.READY)
    assert (ready.slots, ready.busy_slots) == (None, None)
    assert [issue.code for issue in ready.issues] == ["unauthorized"]
    water.scraper.watch(target(port, api_key="sesame"))
    opened = await water.saw(is_idle)
    assert opened.slots == 2 and opened.issues == ()


async def test_a_router_is_summed_and_no_model_is_loaded_by_scraping(
    water: Water, models: Path
) -> None:
    port = free_port()
    water.priority = ScrapePriority.STEADY
    water.scraper.watch(target(port))
    await water.start(port, "--models-dir", models, "-np", "2")
    empty = await water.saw(lambda o: o.status is ScrapeStatus.ASLEEP)
    assert (empty.slots, empty.busy_slots) == (1, 0)
    assert [model.is_loaded for model in empty.models] == [False, False]
    assert await complete(port, 1, "alpha") == 200
    one = await water.saw(is_idle)
    assert one.slots == 2
    assert {model.name: model.slots for model in one.models if model.is_loaded} == {"alpha": 2}
    async with at_work(port, "beta"):
        busy = await water.saw(lambda o: (o.slots, o.busy_slots) == (4, 1))
    assert {model.name: model.busy_slots for model in busy.models} == {"alpha": 0, "beta": 1}
    assert [reading.model for reading in busy.slot_readings] == ["beta"]
    assert busy.context_tokens
    async with httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}/models/unload"
        assert (await client.post(url, json={"model": "alpha"})).status_code == 200
    left = await water.saw(lambda o: is_idle(o) and o.slots == 2, after=len(water.seen))
    assert [model.name for model in left.models if model.is_loaded] == ["beta"]


async def test_a_server_that_wants_to_sleep_sleeps_on_while_it_is_scraped(
    water: Water, models: Path
) -> None:
    port = free_port()
    water.scraper.watch(target(port))
    await water.start(port, "-m", models / "alpha.gguf", "-np", "2", "--sleep-idle-seconds", "2")
    await water.saw(is_idle)
    await water.saw(lambda o: o.status is ScrapeStatus.ASLEEP)
    asleep_from = len(water.seen)
    while len(water.seen) < asleep_from + 30:
        await water.saw(lambda _: True, after=len(water.seen))
    sights = {observation.status for observation in water.seen[asleep_from:]}
    assert sights == {ScrapeStatus.ASLEEP}, "thirty looks and the model stayed unloaded"

    async with at_work(port):
        stranger = await water.saw(lambda o: o.busy_slots == 1, after=len(water.seen))
    assert stranger.status is ScrapeStatus.READY, "its request woke the server and was noticed"
    await water.saw(lambda o: o.status is ScrapeStatus.ASLEEP, after=len(water.seen))


async def test_a_model_of_a_router_sleeps_too(water: Water, models: Path) -> None:
    port = free_port()
    water.scraper.watch(target(port))
    await water.start(port, "--models-dir", models, "-np", "2", "--sleep-idle-seconds", "2")
    await water.saw(lambda o: o.status is ScrapeStatus.ASLEEP)
    async with at_work(port, "alpha"):
        await water.saw(
            lambda o: o.status is ScrapeStatus.READY and o.slots == 2, after=len(water.seen)
        )
    asleep = await water.saw(lambda o: o.status is ScrapeStatus.ASLEEP, after=len(water.seen))
    assert asleep.slots == 2, "the slots it had when it was awake"
