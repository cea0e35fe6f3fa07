"""What holds for every test: none asserts a time, so hypothesis does not either; and Ctrl-C means
what it means in a terminal, though a shell has those ignore it that it starts in the background."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import logging
import signal
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from extproc.demo import port
from tests.scheduling import make_scheduler, rank_of

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

settings.register_profile("coxswain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coxswain")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


TESTS = Path(__file__).parent
PORTS_PER_WORKER = 1_500
ON_ASYNCIO = {"cli", "demo", "fakes", "deploy", "tools", "docs", "keeper"}
"""Folders of what runs on asyncio's own event loop. All else is part of `coxswain serve`, which
runs on uvloop, and so do its tests."""
AGENT = ("scraper/agent", "app/test_agent")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give each test the event loop that its part has in production."""
    if _is_on_uvloop(item):
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


def _is_on_uvloop(item: pytest.Item) -> bool:
    place = item.path.relative_to(TESTS)
    return place.parts[0] not in ON_ASYNCIO and not str(place).startswith(AGENT)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Tests that use the same stack stay on one worker."""
    return make_scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector away from modules and tests, which stay: looking through them takes tenths
    of a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bound each coroutine on uvloop by the test's own time limit: uvloop swallows what the
    limit's signal handler raises, and such a test would hang for ever."""
    usual_s = float(config.getoption("--timeout") or config.getini("timeout"))
    for item in items:
        test = getattr(item, "obj", None)
        if inspect.iscoroutinefunction(test) and _is_on_uvloop(item):
            marker = item.get_closest_marker("timeout")
            limit_s = float(marker.args[0]) if marker and marker.args else usual_s
            item.obj = _bounded(test, 0.9 * limit_s)  # type: ignore[attr-defined]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(item.nodeid))


def _bounded(
    test: Callable[..., Coroutine[object, object, None]], limit_s: float
) -> Callable[..., Coroutine[object, object, None]]:
    @functools.wraps(test)
    async def run(*args: object, **kwargs: object) -> None:
        async with asyncio.timeout(limit_s):
            await test(*args, **kwargs)

    return run


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "breaks_books: breaks the core's books on purpose")
    worker = getattr(config, "workerinput", {"workerid": "gw0"})["workerid"]
    _take_ports_of_worker(int(worker.removeprefix("gw")))


class _Kernels:
    """Stands for the file that tells which ports the kernel gives to whoever asks for any."""

    def __init__(self, first: int) -> None:
        self._first = first

    def read_text(self, encoding: str) -> str:
        return f"{self._first} 65535"


def _take_ports_of_worker(number: int) -> None:
    """Choose ports of a range that is this worker's, so that no two choose the same.

    The ranges lie below that of processes that choose for themselves, as `coxswain up` does.
    """
    port.LOWEST -= (number + 1) * PORTS_PER_WORKER
    port.KERNELS = cast("Path", _Kernels(port.LOWEST + PORTS_PER_WORKER))


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture(autouse=True)
def _books_are_whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """No auditor had to correct anything, and no step of the core failed."""
    errors = _Errors()
    loggers = [logging.getLogger(name) for name in ("coxswain.audit", "coxswain.core")]
    for logger in loggers:
        logger.addHandler(errors)
    yield
    for logger in loggers:
        logger.removeHandler(errors)
    if request.node.get_closest_marker("breaks_books") is None:
        assert errors.texts == []


@pytest.fixture(autouse=True)
def _ctrl_c_is_pytests() -> Iterator[None]:
    """`main` takes the process for the command's own, and ends it at Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
