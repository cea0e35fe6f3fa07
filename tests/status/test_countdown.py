"""Claims about extproc/status/countdown.py, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import repeat

import httpx
import pytest
from aiohttp import web

from extproc.status import countdown
from extproc.status.countdown import Countdown, QueuePosition

FIRST = QueuePosition(position=1, queued=3, waited_s=0.52, expected_s=1.25)
THIRD = QueuePosition(position=3, queued=3, waited_s=0.02)
STREAM = {"accept": "text/event-stream"}


@asynccontextmanager
async def client(
    line: dict[str, QueuePosition | Sequence[QueuePosition | None]],
    *,
    grace_s: float = 0.005,
    who_asks: Callable[[str, str], str | None] = lambda *_: "",
) -> AsyncIterator[httpx.AsyncClient]:
    """A server that knows these places; of a list the next one at each look, then none."""

    scrapes = {
        id_: iter(places) if isinstance(places, Sequence) else repeat(places)
        for id_, places in line.items()
    }

    def find(id_: str, _: str) -> QueuePosition | None:
        return next(scrapes.get(id_, iter(())), None)

    app = web.Application()
    app.add_routes(Countdown(find, who_asks, interval_s=0.001, grace_s=grace_s).routes())
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
            "state": "queued",
            "queue_position": 1,
            "queued": 3,
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
            assert answer.json()["error"]["code"] == "not-queued"
            assert answer.headers["x-coxswain-reason"] == "not-queued"


async def test_a_stream() -> None:
    """Each change once, then the end of the wait, then the end of the stream."""
    async with client({"a": [THIRD, THIRD, THIRD, FIRST, FIRST]}) as web_page:
        answer = await web_page.get("/queue/a", headers=STREAM)
    assert answer.headers["content-type"] == "text/event-stream"
    events = [event.split("\n") for event in answer.text.split("\n\n") if event]
    assert events.pop(0) == ["retry: 1000"]
    assert [name for name, _ in events] == ["event: position", "event: position", "event: over"]
    told = [json.loads(data.removeprefix("data: ")) for _, data in events]
    assert [one.get("queue_position") for one in told] == [3, 1, None]


async def test_a_key_that_is_revoked_ends_a_stream() -> None:
    """It opens nothing any more, though the request may be queued still."""
    clients = iter(["web", "web", "web"])
    async with client({"a": THIRD}, who_asks=lambda *_: next(clients, None)) as web_page:
        answer = await web_page.get("/queue/a", headers=STREAM)
        assert answer.text.split("\n\n")[-2].startswith("event: over")
        assert (await web_page.get("/queue/a")).status_code == 401


@pytest.mark.parametrize(
    ("later", "is_told"),
    [
        (replace(FIRST, waited_s=1.52, expected_s=0.25), False),  # as it was told
        (replace(FIRST, waited_s=0.6, expected_s=2.1), False),
        (replace(FIRST, waited_s=0.6, expected_s=2.3), True),
        (replace(FIRST, waited_s=0.6, expected_s=None), True),
        (replace(FIRST, waited_s=15.6, expected_s=0.1), True),
        (replace(FIRST, queued=4), True),
    ],
)
def test_what_is_news(later: QueuePosition, is_told: bool) -> None:
    """A place counts down by itself on a page: told is what that does not show, and after some
    silence anything."""
    assert later.has_changed_since(FIRST) is is_told


async def test_a_stream_may_be_opened_before_its_request_is_there() -> None:
    """A browser would not ask again after 404."""
    async with client({"a": [None, None, FIRST, FIRST]}, grace_s=60.0) as web_page:
        answer = await web_page.get("/queue/a", headers=STREAM)
    assert answer.status_code == 200 and "event: position" in answer.text
    async with client({"a": [None, FIRST]}) as web_page:
        assert (await web_page.get("/queue/a")).status_code == 404, "who asks again is told at once"


async def test_streams_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is told to ask without a stream."""
    monkeypatch.setattr(countdown, "MAX_STREAMS", 0)
    async with client({"a": FIRST}) as web_page:
        answer = await web_page.get("/queue/a", headers=STREAM)
        assert answer.status_code == 503
        assert answer.headers["x-coxswain-reason"] == "too-many-streams"
        assert answer.headers["retry-after"] == "1"
        assert (await web_page.get("/queue/a")).status_code == 200


async def test_a_client_that_leaves_ends_its_stream() -> None:
    """Its place among the streams is free again."""
    async with client({"a": FIRST}) as web_page:
        for _ in range(3):
            async with web_page.stream("GET", "/queue/a", headers=STREAM) as answer:
                async for line in answer.aiter_lines():
                    assert line == "retry: 1000"
                    break


def test_a_load_is_named() -> None:
    """And nothing is, where none is going on."""
    position = QueuePosition(position=1, queued=1, waited_s=2.0, expected_s=12.2)
    assert "note" not in position.as_json()
    loading = replace(position, load="waits", note="waits, about 12 s")
    assert loading.as_json()["note"] == "waits, about 12 s"
    assert loading.has_changed_since(position)
    assert not replace(loading, note="waits, about 11 s").has_changed_since(loading)
