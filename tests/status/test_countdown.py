"""Claims about extproc/status/countdown.py, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from aiohttp import web

from extproc.status import countdown
from extproc.status.countdown import Countdown, QueuePlace

FIRST = QueuePlace(position=1, waiting=3, waited_s=0.52, expected_s=1.25)
THIRD = QueuePlace(position=3, waiting=3, waited_s=0.02)
STREAM = {"accept": "text/event-stream"}


@asynccontextmanager
async def client(
    line: dict[str, QueuePlace | list[QueuePlace]],
) -> AsyncIterator[httpx.AsyncClient]:
    """A server that knows these places; of a list the next one at each look, then none."""

    def find(id_: str) -> QueuePlace | None:
        place = line.get(id_)
        if isinstance(place, list):
            return place.pop(0) if place else None
        return place

    app = web.Application()
    app.add_routes(Countdown(find, interval_s=0.001).routes())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with httpx.AsyncClient(base_url=url) as found:
            yield found
    finally:
        await runner.cleanup()


async def test_a_place() -> None:
    """Position, length of the line and times, in JSON that any web page may read."""
    async with client({"a": FIRST, "b": THIRD}) as web_page:
        answer = await web_page.get("/queue/a")
        assert answer.json() == {
            "state": "waiting",
            "position": 1,
            "waiting": 3,
            "waited_s": 0.5,
            "expected_s": 1.2,
        }
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["cache-control"] == "no-store"
        assert (await web_page.get("/queue/b")).json()["expected_s"] is None


@pytest.mark.parametrize("headers", [{}, STREAM])
@pytest.mark.parametrize("id_", ["nobody", "%00", "x" * 5000, "..%2fstatus"])
async def test_nobody_waits_with_this_id(id_: str, headers: dict[str, str]) -> None:
    """404 whatever the id is, and whether it ever was one."""
    async with client({"a": FIRST}) as web_page:
        answer = await web_page.get(f"/queue/{id_}", headers=headers)
        assert answer.status_code == 404
        if answer.headers["content-type"].startswith("application/json"):
            assert answer.json()["error"]["code"] == "not-waiting"


async def test_a_stream() -> None:
    """Each change once, then the end of the wait, then the end of the stream."""
    places: list[QueuePlace] = [THIRD, THIRD, THIRD, FIRST, FIRST]
    async with client({"a": [*places]}) as web_page:
        answer = await web_page.get("/queue/a", headers=STREAM)
    assert answer.headers["content-type"] == "text/event-stream"
    events = [event.split("\n") for event in answer.text.split("\n\n") if event]
    assert [name for name, _ in events] == ["event: place", "event: place", "event: over"]
    told = [json.loads(data.removeprefix("data: ")) for _, data in events]
    assert [one.get("position") for one in told] == [3, 1, None]


async def test_streams_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is told to ask without a stream."""
    monkeypatch.setattr(countdown, "MAX_STREAMS", 0)
    async with client({"a": FIRST}) as web_page:
        assert (await web_page.get("/queue/a", headers=STREAM)).status_code == 503
        assert (await web_page.get("/queue/a")).status_code == 200


async def test_a_client_that_leaves_ends_its_stream() -> None:
    """Its place among the streams is free again."""
    async with client({"a": FIRST}) as web_page:
        for _ in range(3):
            async with web_page.stream("GET", "/queue/a", headers=STREAM) as answer:
                async for line in answer.aiter_lines():
                    assert line == "event: place"
                    break
