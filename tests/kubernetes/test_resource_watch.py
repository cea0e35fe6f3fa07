"""Claims about extproc/kubernetes/resource_watch.py and api_server.py, over an API server of the
test's own; tests/scraper/discovery/test_kubernetes.py asks a real one too."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from extproc.kubernetes import api_server
from extproc.kubernetes.api_server import ApiServer
from extproc.kubernetes.resource_watch import PAGE_OBJECTS, Collection, ResourceWatch
from tests.fakes.api_server import FakeApiServer
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import until

ROLE = "the-role.yaml"
PODS = "/api/v1/namespaces/serving/pods"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer(tmp_path) as found:
        yield found


def pod(name: str, value: str = "one", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "value": value}


class Seen:
    """A watch, and a way to wait for what it sees; it asks again as soon as it may."""

    def __init__(self, url: str, folder: Path, collection: Collection) -> None:
        self.pauses: list[float] = []
        self.changes = 0
        self._client = ApiServer(url, folder, PATIENCE_S, ROLE)
        self.watch: ResourceWatch[str] = ResourceWatch(
            self._client, collection, lambda thing: thing.get("value"), self._note, self._pause
        )
        self.watch.start()

    def _note(self) -> None:
        self.changes += 1

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)

    async def sees(self, **expected: str) -> None:
        await until(lambda: self.watch.has_answered and self.watch.found == expected)

    async def aclose(self) -> None:
        await self.watch.aclose()
        await self._client.aclose()


@asynccontextmanager
async def watching(
    api: FakeApiServer, label_selector: str = "", field_selector: str = ""
) -> AsyncIterator[Seen]:
    collection = Collection(path=PODS, label_selector=label_selector, field_selector=field_selector)
    seen = Seen(api.url, api.folder, collection)
    try:
        yield seen
    finally:
        await seen.aclose()


async def test_what_is_there_and_what_changes_is_seen(api: FakeApiServer) -> None:
    api.put("pods", pod("a"))
    async with watching(api) as seen:
        await seen.sees(a="one")
        api.put("pods", pod("b", "two"))
        await seen.sees(a="one", b="two")
        api.put("pods", pod("a", "three"))
        await seen.sees(a="three", b="two")
        api.remove("pods", "b")
        await seen.sees(a="three")
        assert len(api.watches) == 1
        assert api.watches[0]["allowWatchBookmarks"] == "true"


async def test_an_empty_collection_has_answered(api: FakeApiServer) -> None:
    async with watching(api) as seen:
        await seen.sees()
        assert seen.changes == 1


async def test_only_what_the_selectors_match_counts(api: FakeApiServer) -> None:
    """What is relabelled comes and goes."""
    api.put("pods", pod("a", app="llama", tier="gpu"))
    api.put("pods", pod("b", app="other", tier="gpu"))
    async with watching(api, "app=llama,tier=gpu") as seen:
        await seen.sees(a="one")
        api.put("pods", pod("b", app="llama", tier="gpu"))
        await seen.sees(a="one", b="one")
        api.put("pods", pod("a", app="other"))
        await seen.sees(b="one")
    async with watching(api, field_selector="metadata.name=b") as seen:
        await seen.sees(b="one")


async def test_a_list_comes_page_by_page(api: FakeApiServer) -> None:
    for number in range(2 * PAGE_OBJECTS + 1):
        api.put("pods", pod(f"p{number}"))
    async with watching(api) as seen:
        await until(lambda: len(seen.watch.found) == 2 * PAGE_OBJECTS + 1)
        assert seen.changes == 1
    assert len([path for _, path, _ in api.asked if path == PODS]) == 3


async def test_a_watch_that_ends_goes_on_where_its_bookmark_was(api: FakeApiServer) -> None:
    """No list: what others have done meanwhile is still to be told."""
    api.put("pods", pod("a"))
    async with watching(api) as seen:
        await seen.sees(a="one")
        await until(lambda: len(api.watches) == 1)
        api.put("configmaps", {"metadata": {"name": "far"}, "data": {}})
        for count in range(2, 5):
            api.cut_watches(is_clean=True)
            await until(lambda count=count: len(api.watches) == count)  # type: ignore[misc]
        assert int(api.watches[-1]["resourceVersion"]) > int(api.watches[0]["resourceVersion"])
        api.put("pods", pod("b"))
        await seen.sees(a="one", b="one")
        assert len([path for _, path, _ in api.asked if path == PODS]) == 1
        assert not seen.pauses


async def test_a_watch_that_is_cut_misses_nothing_and_is_no_problem(
    api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    api.put("pods", pod("a"))
    async with watching(api) as seen:
        await seen.sees(a="one")
        for name in ("b", "c", "d"):
            begun = len(api.watches)
            api.cut_watches()
            api.put("pods", pod(name))
            await until(lambda begun=begun: len(api.watches) > begun)  # type: ignore[misc]
        api.remove("pods", "a")
        await seen.sees(b="one", c="one", d="one")
        assert seen.watch.problem == ""
    assert not caplog.records


async def test_a_version_that_is_forgotten_is_listed_again(api: FakeApiServer) -> None:
    api.put("pods", pod("a"))
    async with watching(api) as seen:
        await seen.sees(a="one")
        begun = len(api.watches)
        api.cut_watches(is_clean=True)
        api.put("pods", pod("b"))
        api.forget()
        api.remove("pods", "a")
        await seen.sees(b="one")
        await until(lambda: len(api.watches) > begun)
        assert seen.watch.problem == ""


async def test_a_lost_server_changes_nothing_and_is_said_once(
    api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    api.put("pods", pod("a", app="x"))
    async with watching(api, "app=x") as seen:
        await seen.sees(a="one")
        await api.stop()
        await until(lambda: len(seen.pauses) > 12)
        assert seen.watch.found == {"a": "one"}
        assert seen.watch.problem
        assert max(seen.pauses) > 8.0, "the pauses grow"
        assert max(seen.pauses) <= 30.0
        api.put("pods", pod("b", app="x"))
        await api.start()
        await seen.sees(a="one", b="one")
        await until(lambda: not seen.watch.problem)
    texts = [each.getMessage() for each in caplog.records if each.name.startswith("coxswain")]
    assert len(texts) == 2, texts
    assert "pods app=x" in texts[0] and "keeping its previous 1" in texts[0]
    assert "answers again" in texts[1]


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda api: setattr(api, "is_refused", True), f"403.*{ROLE}"),
        (lambda api: setattr(api, "token", "another"), "rejects the service account .401."),
        (lambda api: setattr(api, "is_broken", True), "answered 500: etcdserver"),
        (lambda api: api.missing_kinds.add("pods"), "the API server has no pods"),
    ],
)
async def test_what_the_server_says_is_told(
    api: FakeApiServer, break_it: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    break_it(api)
    async with watching(api) as seen:
        await until(lambda: bool(seen.watch.problem))
        assert not seen.watch.has_answered
        assert "a-token" not in seen.watch.problem + caplog.text
        assert re.search(said, seen.watch.problem)


async def test_a_server_that_lists_but_cannot_be_watched_is_asked_again(tmp_path: Path) -> None:
    """And what it sends need not be what a server of Kubernetes sends."""
    answers: list[bytes] = [
        b"no json\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": {}}\n',
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "2"}}}\n',
        b'{"type": "ERROR", "object": {"code": 500, "message": "broken"}}\n',
        b"[]\n",
    ]
    lists = 0

    async def serve(request: web.Request) -> web.Response:
        nonlocal lists
        if request.query.get("watch"):
            return web.Response(body=answers.pop(0) if answers else b"")
        lists += 1
        items = [pod("a", str(lists))]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async with served(serve) as url:
        seen = Seen(url, tmp_path, Collection(path=PODS))
        await until(lambda: len(seen.pauses) >= 8)
        assert not answers
        assert int(seen.watch.found["a"]) >= 7, "each time it was listed again"
        assert max(seen.pauses) > 4.0, "a watch that ends at once does not make a busy loop"
        await seen.aclose()


@asynccontextmanager
async def served(handler: Any) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "page",
    [
        {"items": []},
        {"metadata": {}, "items": []},
        {"metadata": {"resourceVersion": "1"}, "items": {"a": 1}},
        {"metadata": {"resourceVersion": "1"}, "items": [7]},
        {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": None}}]},
        [],
        "text",
    ],
)
async def test_a_list_that_is_none_is_a_problem_and_changes_nothing(
    tmp_path: Path, page: Any
) -> None:
    async def serve(request: web.Request) -> web.Response:
        return web.json_response(page)

    async with served(serve) as url:
        seen = Seen(url, tmp_path, Collection(path=PODS))
        await until(lambda: len(seen.pauses) > 2)
        assert "the API server" in seen.watch.problem
        assert not seen.watch.has_answered
        await seen.aclose()


async def test_events_are_lines_however_they_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces, several at once, with line ends of Unicode within; and one without end is cut."""
    monkeypatch.setattr(api_server, "MAX_EVENT_BYTES", 1000)
    text = "a\x85b\u2028c"
    events = [
        {
            "type": "ADDED",
            "object": {**pod(f"p{n}", text), "metadata": {"name": f"p{n}", "resourceVersion": "2"}},
        }
        for n in range(3)
    ]
    body = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events).encode()
    watches, is_over = 0, asyncio.Event()

    async def serve(request: web.Request) -> web.StreamResponse:
        nonlocal watches
        if not request.query.get("watch"):
            return web.json_response({"metadata": {"resourceVersion": "1"}})
        watches += 1
        answer = web.StreamResponse()
        await answer.prepare(request)
        if watches > 1:
            await answer.write(b"x" * 2000)
            await is_over.wait()
            return answer
        for position in range(0, len(body), 7):
            await answer.write(body[position : position + 7])
            await asyncio.sleep(0)
        return answer

    async with served(serve) as url:
        seen = Seen(url, tmp_path, Collection(path=PODS))
        await until(lambda: watches >= 3)
        assert seen.changes >= 4
        assert seen.pauses, "it was cut, and listed again"
        is_over.set()
        await seen.aclose()
