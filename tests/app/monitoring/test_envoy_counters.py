"""Claims about extproc/app/monitoring/envoy_counters.py."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from extproc.app.monitoring import envoy_counters
from extproc.app.monitoring.envoy_counters import EnvoyCounters
from extproc.demo.port import free_port
from tests.fakes.log import logged
from tests.fakes.picker import until

PREFIX = "envoy_http_ext_proc_coxswain_"
LABELS = '{envoy_http_conn_manager_prefix="coxswain"}'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envoy_counters, "INTERVAL_S", 0.001)


class Page:
    """The page of an Envoy's metrics; `status` may be made bad."""

    def __init__(self) -> None:
        self.counts = {"message_timeouts": 0, "failure_mode_allowed": 0, "streams_failed": 0}
        self.status = 200
        self.reads = 0

    async def answer(self, request: web.Request) -> web.Response:
        assert request.query_string == "filter=ext_proc"
        self.reads += 1
        lines = [
            line
            for name, count in self.counts.items()
            for line in (
                f"# TYPE {PREFIX}{name} counter",
                f"{PREFIX}{name}{LABELS} {count}",
                f"{PREFIX}{name}_of_others{LABELS} 77",
            )
        ]
        lines.append('envoy_http_ext_proc_message_timeouts{envoy_http_conn_manager_prefix="b"} 1')
        return web.Response(status=self.status, text="\n".join(lines) + "\n")


@asynccontextmanager
async def envoy() -> AsyncIterator[tuple[Page, str]]:
    page, port = Page(), free_port()
    app = web.Application()
    app.router.add_get("/stats/prometheus", page.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield page, f"127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_message_timeouts_are_a_problem_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only those since the picker reads: an Envoy may be older. Other counters are left out."""
    async with envoy() as (page, address):
        page.counts["message_timeouts"] = 40
        counters = EnvoyCounters([address], time.monotonic)
        counters.start()
        await until(lambda: page.reads >= 2)
        assert counters.problems() == ()
        with caplog.at_level(logging.WARNING, "coxswain"):
            page.counts |= {"message_timeouts": 43, "failure_mode_allowed": 5}
            await until(lambda: bool(counters.problems()))
            page.counts["message_timeouts"] = 44
            await until(lambda: "4 times" in counters.problems()[0])
        assert dict(counters.read()) == {
            (address, "message_timeouts"): 45,
            (address, "failure_mode_allowed"): 5,
            (address, "streams_failed"): 0,
        }
        await counters.aclose()
    (record,) = logged(caplog)
    assert f"Envoy at {address} waited 3 times" in record.getMessage()


async def test_counters_that_begin_again_are_no_timeouts() -> None:
    """Envoy was restarted."""
    async with envoy() as (page, address):
        page.counts["message_timeouts"] = 40
        counters = EnvoyCounters([address], time.monotonic)
        counters.start()
        await until(lambda: page.reads >= 2)
        page.counts["message_timeouts"] = 0
        await until(lambda: counters.read().get((address, "message_timeouts")) == 1)
        assert counters.problems() == ()
        await counters.aclose()


async def test_an_envoy_that_cannot_be_read_is_named_and_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    async with envoy() as (page, address):
        page.status = 404
        counters = EnvoyCounters([address, nobody], time.monotonic)
        with caplog.at_level(logging.WARNING, "coxswain"):
            counters.start()
            await until(lambda: len(counters.problems()) == 2)
        assert sorted(counters.problems()) == sorted(
            [
                f"cannot read the counters of Envoy at {address}: status 404",
                f"cannot read the counters of Envoy at {nobody}: it does not answer",
            ]
        )
        assert len(logged(caplog)) == 2
        assert counters.read() == {}
        page.status = 200
        await until(lambda: bool(counters.read()))
        await until(lambda: len(counters.problems()) == 1)
        await counters.aclose()


async def test_without_addresses_nothing_runs() -> None:
    counters = EnvoyCounters([], time.monotonic)
    counters.start()
    assert counters.read() == {} and counters.problems() == ()
    await counters.aclose()
