"""Claims about extproc/batches/runner.py, with a real client and a server in place of Envoy; what
the picker says is set by hand."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from extproc.batches import runner as runner_module
from extproc.batches.gate import Capacity
from extproc.batches.runner import Runner
from extproc.batches.store import BatchStore
from tests.batches.test_store import content, ids, read, submit

QUICK_S = 0.01


@dataclass
class Rig:
    """A runner, its store, and the server to which it sends. `answers` come in order, then 200;
    while `holds`, requests stay."""

    store: BatchStore
    capacity_now: Capacity | None = None
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    seen: list[dict[str, str]] = field(default_factory=list)
    held: int = 0
    most: int = 0
    broken: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    rejects: str = ""
    limited: str = ""
    opened: set[str] = field(default_factory=set)
    runner: Runner = field(init=False)
    work: asyncio.Task[None] = field(init=False)

    def pool_of(self, model: str) -> str:
        return ""

    def capacity(self, pool: str) -> Capacity | None:
        return self.capacity_now

    def tell(self, slots: int, busy: int) -> None:
        self.capacity_now = Capacity(slots=slots, busy=busy)
        self.runner.wake()

    async def answer(self, request: web.Request) -> web.Response:
        if self.rejects and self.rejects in await request.text():
            headers = {"x-coxswain-reason": "no-endpoint"}
            return web.json_response({}, status=503, headers=headers)
        if self.limited == request.headers.get("x-gateway-inference-fairness-id"):
            headers = {"x-coxswain-reason": "rate-limited", "retry-after": "1"}
            return web.json_response({}, status=429, headers=headers)
        self.seen.append({name.lower(): text for name, text in request.headers.items()})
        self.held += 1
        self.most = max(self.most, self.held)
        try:
            if self.broken:
                self.broken -= 1
                assert request.transport is not None
                request.transport.close()
            await self.gate.wait()
        finally:
            self.held -= 1
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        return web.json_response({"n": len(self.seen)}, status=status, headers=headers)


@asynccontextmanager
async def running(
    folder: Path, *, holds: bool = False, may_end: bool = False
) -> AsyncIterator[Rig]:
    store = BatchStore(folder / "batches.db")
    rig = Rig(store)
    if not holds:
        rig.gate.set()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", rig.answer)
    server = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()

    async def in_store(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return call(*args, **named)

    url = f"http://127.0.0.1:{server.addresses[0][1]}"
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        headers = {"x-gateway-inference-objective": "b"}
        opens = rig.opened.__contains__
        rig.runner = Runner(store, in_store, rig, client, lambda: headers, opens, now=lambda: 101.0)
        work = rig.work = asyncio.create_task(rig.runner.run())
        try:
            yield rig
            assert may_end or not work.done()
        finally:
            rig.gate.set()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await server.cleanup()
            store.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110  # another task changes it
            await asyncio.sleep(0.01)


def ended(rig: Rig, batch: str) -> bool:
    found = rig.store.batch("ann", batch, 0.0)
    return found is not None and not found.is_live


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE_S", "NO_SLOT_PAUSE_S", "TICK_S"):
        monkeypatch.setattr(runner_module, name, QUICK_S)


async def test_nothing_is_sent_without_a_picker_or_an_idle_slot(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        batch = submit(rig.store, content(3)).id
        rig.runner.wake()
        await asyncio.sleep(0.1)
        assert not rig.seen
        rig.tell(slots=4, busy=4)
        await asyncio.sleep(0.1)
        assert not rig.seen
        rig.tell(slots=4, busy=0)
        await until(lambda: ended(rig, batch))
        assert len(rig.seen) == 3
        for headers in rig.seen:
            assert headers["x-gateway-inference-objective"] == "b"
            assert headers["x-coxswain-queue-timeout-ms"] == "0", "never queued"
            assert headers["x-gateway-inference-fairness-id"] == "ann"
        assert len({headers["x-request-id"] for headers in rig.seen}) == 3


async def test_no_more_than_there_are_slots(tmp_path: Path) -> None:
    async with running(tmp_path, holds=True) as rig:
        submit(rig.store, content(9))
        rig.tell(slots=2, busy=0)
        await until(lambda: rig.held == 2)
        rig.tell(slots=2, busy=0)
        await asyncio.sleep(0.1)
        assert rig.most == 2


async def test_a_slot_that_becomes_idle_need_not_wait_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are claimed ahead; those that were not sent when the process ended are sent later."""
    async with running(tmp_path) as rig:
        claims: list[int] = []
        claim = rig.store.claim

        def counted(model: str, count: int, *without: Any) -> Any:
            claims.append(count)
            return claim(model, count, *without)

        monkeypatch.setattr(rig.store, "claim", counted)
        batch = submit(rig.store, content(9)).id
        rig.tell(slots=1, busy=0)
        await until(lambda: ended(rig, batch))
        assert len(rig.seen) == 9 and rig.most == 1
        assert len([count for count in claims if count > 0]) <= 2, "the second finds none"
        batch = submit(rig.store, content(9)).id
        rig.gate.clear()
        rig.tell(slots=1, busy=0)
        await until(lambda: rig.held == 1)
    async with running(tmp_path) as rig:
        rig.tell(slots=1, busy=0)
        await until(lambda: ended(rig, batch))
        assert len(rig.seen) == 9


async def test_lines_are_given_back_at_once_newest_first(tmp_path: Path) -> None:
    """And they are sent again; each has one result."""
    async with running(tmp_path, holds=True) as rig:
        batch = submit(rig.store, content(4)).id
        rig.tell(slots=4, busy=0)
        await until(lambda: rig.held == 4)
        rig.tell(slots=4, busy=4)
        rig.tell(slots=4, busy=6)
        await until(lambda: rig.held == 2)
        assert rig.runner.running == 2
        rig.gate.set()
        rig.tell(slots=4, busy=0)
        await until(lambda: ended(rig, batch))
        assert len(rig.seen) == 6
        repeated = [headers["x-request-id"] for headers in rig.seen[4:]]
        assert sorted(repeated) == sorted(headers["x-request-id"] for headers in rig.seen[2:4])
        found = rig.store.batch("ann", batch, 0.0)
        assert found is not None and len(ids(read(rig.store, found.output_file_id))) == 4


async def test_what_may_be_retried_is(tmp_path: Path) -> None:
    """With Retry-After; no slot is no failure, and 400 is final."""
    no_slot = (429, {"x-coxswain-reason": "shed"})
    async with running(tmp_path) as rig:
        rig.answers = [(503, {"retry-after": "0"}), *[no_slot] * 9, (429, {}), (200, {})]
        batch = submit(rig.store, content(1)).id
        rig.tell(slots=1, busy=0)
        await until(lambda: ended(rig, batch))
        assert len(rig.seen) == 12
        rig.answers = [(400, {})]
        rig.seen.clear()
        batch = submit(rig.store, content(1)).id
        rig.runner.wake()
        await until(lambda: ended(rig, batch))
        assert len(rig.seen) == 1
        found = rig.store.batch("ann", batch, 0.0)
        assert found is not None and found.failed == 1
        result = json.loads(read(rig.store, found.error_file_id))
        assert result["response"]["status_code"] == 400


@pytest.mark.parametrize(
    ("status", "reason"),
    [(404, "model-not-found"), (403, "objective-not-allowed"), (429, "budget-used-up")],
)
async def test_what_a_key_may_not_is_the_result_of_its_line(
    tmp_path: Path, status: int, reason: str
) -> None:
    """As of its own requests, whatever Retry-After says."""
    async with running(tmp_path) as rig:
        rig.answers = [(status, {"x-coxswain-reason": reason, "retry-after": "9999"})]
        batch = submit(rig.store, content(2)).id
        rig.tell(slots=1, busy=0)
        await until(lambda: ended(rig, batch))
        found = rig.store.batch("ann", batch, 0.0)
        assert found is not None and (found.completed, found.failed) == (1, 1)
        result = json.loads(read(rig.store, found.error_file_id))
        assert result["response"]["status_code"] == status


async def test_a_client_that_is_limited_does_not_hold_up_others(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.limited = "ann"
        stuck = submit(rig.store, content(9)).id
        submit(rig.store, content(9), "bob")
        rig.tell(slots=2, busy=0)
        await until(lambda: not rig.store.batches("bob", "", 1, 0.0)[0].is_live)
        assert not ended(rig, stuck)
        rig.limited = ""
        await until(lambda: ended(rig, stuck))
        found = rig.store.batch("ann", stuck, 0.0)
        assert found is not None and found.completed == 9


async def test_a_key_that_opens_no_more_stops_its_batch(tmp_path: Path) -> None:
    async with running(tmp_path, holds=True) as rig:
        rig.opened |= {"aaa", "bbb"}
        batch = submit(rig.store, content(5), key="aaa").id
        other = submit(rig.store, content(1), key="bbb").id
        rig.tell(slots=2, busy=0)
        await until(lambda: rig.held == 2)
        rig.opened.remove("aaa")
        await until(lambda: ended(rig, batch))
        rig.gate.set()
        await until(lambda: ended(rig, other))
        assert len(rig.seen) == 3


async def test_retries_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "MAX_TRIES", 3)
    async with running(tmp_path) as rig:
        rig.answers = [(502, {})] * 3
        batch = submit(rig.store, content(1)).id
        rig.tell(slots=1, busy=0)
        await until(lambda: ended(rig, batch))
        assert len(rig.seen) == 3
        rig.broken = 3
        batch = submit(rig.store, content(1)).id
        rig.runner.wake()
        await until(lambda: ended(rig, batch))
        found = rig.store.batch("ann", batch, 0.0)
        assert found is not None
        result = json.loads(read(rig.store, found.error_file_id))
        assert result["response"] is None and result["error"]["code"] == "connection_error"


async def test_the_lines_of_a_batch_that_ended_are_stopped(tmp_path: Path) -> None:
    async with running(tmp_path, holds=True) as rig:
        batch = submit(rig.store, content(5)).id
        rig.tell(slots=2, busy=0)
        await until(lambda: rig.held == 2)
        rig.store.cancel("ann", batch, 0.0)
        rig.runner.stop_batch(batch)
        await until(lambda: rig.held == 0)
        rig.gate.set()
        rig.tell(slots=2, busy=0)
        other = submit(rig.store, content(1)).id
        await until(lambda: ended(rig, other))
        assert len(rig.seen) == 3


async def test_a_model_without_a_slot_does_not_hold_up_others(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.rejects = "large"
        stuck = submit(rig.store, content(3, model="large")).id
        batch = submit(rig.store, content(3)).id
        rig.tell(slots=2, busy=0)
        await until(lambda: ended(rig, batch))
        assert not ended(rig, stuck)
        rig.rejects = ""
        await until(lambda: ended(rig, stuck))
        found = rig.store.batch("ann", stuck, 0.0)
        assert found is not None and found.completed == 3


async def test_a_store_that_cannot_be_written_ends_the_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started again, and nothing is lost by then."""

    def fail(*_: object, **__: object) -> bool:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(BatchStore, "record", fail)
    async with running(tmp_path, may_end=True) as rig:
        submit(rig.store, content(1))
        rig.tell(slots=1, busy=0)
        await until(rig.work.done)
        assert isinstance(rig.work.exception(), sqlite3.OperationalError)
