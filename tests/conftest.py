"""What holds for every test: none asserts a time, so hypothesis does not either; and Ctrl-C means
what it means in a terminal, though a shell has those ignore it that it starts in the background."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

settings.register_profile("coxswain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coxswain")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


TESTS = Path(__file__).parent
ON_ASYNCIO = {"cli", "demo", "fakes", "deploy", "tools", "docs"}
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
    config.addinivalue_line("markers", "fleet(name): borrows a stack of that fleet")
    config.addinivalue_line("markers", "xdist_group(name): stays on one worker with its group")


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
