"""Claims about extproc/status/server.py, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from aiohttp import web

from extproc.core.views.fleet_capacity import FleetHealth
from extproc.status import Hosts, StatusServer, StatusSources, server
from extproc.transport import http_port

NO_SLOTS = FleetHealth(idle=0, processing=0)


@dataclass
class Told:
    """What the pages are told."""

    obstacles: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    health: FleetHealth = NO_SLOTS
    status: dict[str, Any] = field(default_factory=dict)

    asked: int = 0
    limited: list[tuple[int | None, str]] = field(default_factory=list)

    def sources(self) -> StatusSources:
        def status(limit: int | None, named: str) -> dict[str, Any]:
            self.asked += 1
            self.limited.append((limit, named))
            return self.status

        async def metrics() -> bytes:
            return b"coxswain_slots 2\n"

        return StatusSources(
            health=lambda: self.health,
            status=status,
            activity=lambda endpoint: {"endpoint": endpoint, "asked": self.count()},
            obstacles=lambda: self.obstacles,
            problems=lambda: self.problems,
            metrics=metrics,
        )

    def count(self) -> int:
        self.asked += 1
        return self.asked


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def client(told: Told) -> AsyncIterator[httpx.AsyncClient]:
    async def extra(_: web.Request) -> web.Response:
        return web.Response(text="more")

    server = StatusServer(told.sources(), [web.get("/more", extra)], Hosts(["picker.internal"]))
    port = await server.start("127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield client
    await server.stop()


async def test_alive_whatever_happens(told: Told, client: httpx.AsyncClient) -> None:
    """`/healthz` is 200 also when the picker is not ready."""
    told.obstacles = ("there are no endpoints",)
    assert (await client.get("/healthz")).status_code == 200


async def test_readiness_in_words(told: Told, client: httpx.AsyncClient) -> None:
    """`/readyz` is 200 without obstacles and 503 with them, one a line."""
    assert (await client.get("/readyz")).text == "ready\n"
    told.problems = ("usage cannot be saved",)
    served = await client.get("/readyz")
    assert (served.status_code, served.text) == (200, "ready\nproblem: usage cannot be saved\n")
    told.problems = ()
    told.obstacles = ("no endpoint is ready", "10.0.0.1:8080 is down")
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.text.splitlines() == ["no endpoint is ready", "10.0.0.1:8080 is down"]


async def test_health_for_balancers(told: Told, client: httpx.AsyncClient) -> None:
    """`/health` is 503 without a slot, and 200 with any, also while all are busy."""
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "error")
    told.health = FleetHealth(idle=0, processing=3)
    answer = await client.get("/health")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (
        200,
        "application/json",
    )
    assert answer.json() == {
        "status": "no slot available",
        "slots_idle": 0,
        "slots_processing": 3,
    }


async def test_status_is_json_and_never_cached(told: Told, client: httpx.AsyncClient) -> None:
    """`/status` is what the source tells, as JSON that nobody keeps."""
    told.status = {"queue": {"queued": 3}}
    answer = await client.get("/status")
    assert answer.json() == {"queue": {"queued": 3}}
    assert answer.headers["cache-control"] == "no-store"


async def test_status_of_a_large_fleet_may_be_limited(
    told: Told, client: httpx.AsyncClient
) -> None:
    """How many endpoints, and which one beside them; without a number it is all of them."""
    await client.get("/status")
    await client.get("/status?limit=300&endpoint=gpu-1")
    for wrong in ("-1", "many", ""):
        answer = await client.get(f"/status?limit={wrong}")
        assert answer.status_code == 400 and "limit" in answer.text
    assert told.limited == [(None, ""), (300, "gpu-1")]


async def test_an_old_status_only_for_those_who_take_one(
    told: Told, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many dashboards share one answer; whoever does not say so gets the present state."""
    monkeypatch.setattr(server, "MAX_AGE_S", 3600.0)
    old = {"cache-control": "max-age=3600"}
    for _ in range(5):
        assert (await client.get("/status", headers=old)).json() == {}
    assert told.asked == 1
    told.status = {"queue": {"queued": 4}}
    for headers in ({}, {"cache-control": "max-age=0"}, {"cache-control": "no-cache"}):
        before = told.asked
        answer = await client.get("/status", headers=headers)
        assert answer.json() == told.status and told.asked == before + 1


async def test_activity_of_all_and_of_one_endpoint(
    told: Told, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old answer is shared as with `/status`, but never that of another endpoint."""
    monkeypatch.setattr(server, "MAX_AGE_S", 3600.0)
    old = {"cache-control": "max-age=3600"}
    answers = [
        (await client.get("/activity", params=params, headers=old)).json()
        for params in ({}, {"endpoint": "gpu-1"}, {}, {"endpoint": "gpu-1"})
    ]
    assert [each["endpoint"] for each in answers] == ["", "gpu-1", "", "gpu-1"]
    assert [each["asked"] for each in answers] == [1, 2, 1, 2]
    assert (await client.get("/activity")).json()["asked"] == 3


async def test_kept_answers_are_bounded(
    told: Told, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked for, and then nobody gets the answer of another."""
    monkeypatch.setattr(server, "MAX_AGE_S", 3600.0)
    monkeypatch.setattr(server, "MAX_KEPT", 2)
    old = {"cache-control": "max-age=3600"}
    for _ in range(2):
        for name in ("a", "b", "c"):
            answer = await client.get("/activity", params={"endpoint": name}, headers=old)
            assert answer.json()["endpoint"] == name
    assert told.asked == 4


async def test_the_dashboard_is_html_and_never_cached(client: httpx.AsyncClient) -> None:
    """`/` is a page with its policy beside it."""
    answer = await client.get("/")
    assert answer.status_code == 200 and answer.text.startswith("<!doctype html>")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("page", ["/", "/status", "/activity", "/metrics", "/readyz"])
async def test_pages_answer_to_names_that_nobody_else_can_own(
    client: httpx.AsyncClient, page: str
) -> None:
    """Not to one that somebody else lets point here: its own page could then read them."""
    stranger = await client.get(page, headers={"host": "rebound.example:9090"})
    assert stranger.status_code == 421 and "listen.http_hosts" in stranger.text
    for host in ("127.0.0.1:9090", "localhost", "[::1]:9090", "picker.internal"):
        answer = await client.get(page, headers={"host": host})
        assert answer.status_code == 200, host


async def test_probes_and_the_countdown_take_any_host(client: httpx.AsyncClient) -> None:
    """Envoy asks for the countdown with the `Host` of its client."""
    for page, status in (("/healthz", 200), ("/queue/none", 404)):
        answer = await client.get(page, headers={"host": "api.example"})
        assert answer.status_code == status


async def test_metrics_say_their_format(client: httpx.AsyncClient) -> None:
    """`/metrics` is Prometheus text and says so."""
    answer = await client.get("/metrics")
    assert answer.text == "coxswain_slots 2\n"
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_further_routes(client: httpx.AsyncClient) -> None:
    """Routes that others bring are served beside the built-in ones; unknown ones are 404."""
    assert (await client.get("/more")).text == "more"
    assert (await client.get("/nothing")).status_code == 404
    assert (await client.post("/status")).status_code == 405


async def get(port: int, path: str, *, is_whole: bool = True) -> asyncio.StreamReader:
    """A connection that is kept, and its answer; without an end of the headers, none comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    HELD.append(writer)
    end = "\r\n\r\n" if is_whole else "\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost{end}".encode())
    if is_whole:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"\r\n\r\n")
    return reader


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionResetError):
        await reader.read()
    return reader.at_eof() or reader.exception() is not None


HELD: list[asyncio.StreamWriter] = []
"""Or the collector would close their connections."""


async def test_connections_are_bounded_and_none_keeps_others_out(
    told: Told, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those without a request for longest make way, whether their headers never came or their last
    request is long over; a request that is being answered is not cut. One log line says so."""
    monkeypatch.setattr(http_port, "connections", lambda _: 3)
    monkeypatch.setattr(http_port, "SPARED_S", 0.0)
    gate = asyncio.Event()

    async def long(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await gate.wait()
        await response.write(b"done")
        return response

    subject = StatusServer(told.sources(), [web.get("/long", long)])
    port = await subject.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(60):
            served = await get(port, "/long")
            half_open = await get(port, "/status", is_whole=False)
            kept = await get(port, "/healthz")
            newer = await get(port, "/healthz")
            assert await is_closed(half_open)
            await get(port, "/healthz")
            assert await is_closed(kept)
            for _ in range(20):
                await get(port, "/status", is_whole=False)
            assert await is_closed(newer)
            await get(port, "/healthz")
            gate.set()
            assert b"done" in await served.readuntil(b"done")
        assert caplog.text.count("which is the limit") == 1
    finally:
        await subject.stop()
        while HELD:
            HELD.pop().close()


async def test_those_who_come_together_are_answered_each(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more than may be open at once, which send their requests later, as Envoy does: none makes
    way before, and those that do not fit wait."""
    monkeypatch.setattr(http_port, "connections", lambda _: 32)
    monkeypatch.setattr(http_port, "SPARED_S", 3600.0)
    subject = StatusServer(told.sources())
    port = await subject.start("127.0.0.1", 0)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    try:
        for _ in range(30):
            await asyncio.sleep(0)
        for each in clients:
            each.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            each.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            answers = [await loop.sock_recv(each, 15) for each in clients]
        assert set(answers) == {b"HTTP/1.1 200 OK"}
    finally:
        await subject.stop()
        for each in clients:
            each.close()


async def test_headers_that_do_not_come_end_the_connection(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that has brought a request stays."""
    monkeypatch.setattr(http_port, "HEADERS_S", 0.05)
    subject = StatusServer(told.sources())
    port = await subject.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(60):
            kept = await get(port, "/healthz")
            assert await is_closed(await get(port, "/status", is_whole=False))
            HELD[0].write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await kept.readuntil(b"200 OK")
    finally:
        await subject.stop()
        while HELD:
            HELD.pop().close()


async def test_a_taken_port_is_an_error(told: Told) -> None:
    """A port in use raises `OSError`, and the server that met it can still be stopped."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = StatusServer(told.sources())
        with pytest.raises(OSError):
            await server.start("127.0.0.1", taken.getsockname()[1])
        await server.stop()
