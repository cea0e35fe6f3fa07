"""Claims about the generated configuration, proven by a real Envoy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from envoy_data_plane.envoy.config.core.v3 import HeaderMap, HeaderValue
from envoy_data_plane.envoy.service.ext_proc.v3 import (
    HttpHeaders,
    StreamedBodyResponse,
    StreamedImmediateResponse,
)
from envoy_data_plane.envoy.service.ext_proc.v3 import ProcessingResponse as Streamed

from extproc import header_names
from extproc.demo.port import LOOPBACK, free_port, free_ports
from extproc.envoy_config.options import EnvoyOptions, HostPort, Mode
from extproc.envoy_config.snippet import snippet
from extproc.header_names import READABLE
from extproc.pb.external_processor_pb2 import ProcessingResponse
from tests.e2e.foreign_envoy import APP, as_before, dropped_in
from tests.fakes.echo_server import EchoServer, echo_server
from tests.fakes.envoy import RunningEnvoy, running_envoy
from tests.fakes.envoy_text import options_with
from tests.fakes.fixed_picker import FixedPicker, fixed_picker
from tests.fakes.patience import PATIENCE_S
from tests.fakes.raw_http import ask

pytestmark = pytest.mark.e2e

COMPLETION = "/v1/chat/completions"
PATIENT = options_with(message_timeout_s=PATIENCE_S, open_paths=(f"POST {COMPLETION}*",))
"""With a picker that does not get to answering, as on a busy machine; the echo servers have
ways to answer below the one path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Envoy before two servers and a picker that names the first of them."""

    envoy: RunningEnvoy
    picker: FixedPicker
    first: EchoServer
    second: EchoServer
    dead: str
    client: httpx.AsyncClient

    @property
    def servers(self) -> tuple[EchoServer, EchoServer]:
        return self.first, self.second

    def forget(self) -> None:
        for server in self.servers:
            server.reached.clear()


@asynccontextmanager
async def rig(
    folder: Path, options: EnvoyOptions = PATIENT, *, is_shared: bool = False
) -> AsyncIterator[Rig]:
    """With `is_shared`, its listener was there before, with other routes."""
    async with echo_server() as first, echo_server() as second:
        dead = f"{LOOPBACK}:{free_port()}"
        fixed = FixedPicker(
            fleet=[first.address, second.address, dead],
            destinations=first.address,
            host_names={first.address: "first.internal", second.address: "second.internal"},
        )
        async with fixed_picker(fixed) as picker:
            chosen = replace(options, picker=HostPort(LOOPBACK, picker.port))
            text = None
            if is_shared:
                chosen = at_free_ports(chosen)
                text = dropped_in(snippet(chosen), chosen)
            async with (
                running_envoy(chosen, folder, text) as envoy,
                httpx.AsyncClient(base_url=envoy.url, timeout=PATIENCE_S) as client,
            ):
                yield Rig(
                    envoy=envoy,
                    picker=picker,
                    first=first,
                    second=second,
                    dead=dead,
                    client=client,
                )


def at_free_ports(options: EnvoyOptions) -> EnvoyOptions:
    listen, admin = (f"{LOOPBACK}:{port}" for port in free_ports(2))
    return options_with(options, listen=listen, admin=admin)


TRICKS = [
    "/slots",
    "/slots/",
    "/slots?model=tiny",
    "/slots/0?action=erase",
    "//slots",
    "///slots//0",
    "/./slots",
    "/v1/../slots",
    "/v1/slots/../../slots",
    "/a/%2e%2e/slots",
    "/%73lots",
    "/%73%6c%6F%74%73",
    "/%2fslots",
    "/slots%2f0",
    "/a%2f..%2fslots",
    "/%5cslots",
    "/\\slots",
    "/a\\..\\slots",
    "/%u0073lots",
    "/%U0073lots",
    "/%%75073lots",
    "http://elsewhere/slots",
    "http://elsewhere//slots",
    "/metrics",
    "/models/load",
    "/models/unload",
    "/models/sse",
    "/tools",
    "/cors-proxy?url=http://127.0.0.1/",
    "/predict",
    "/slots%2f..%2fslots",
]

DETOURS = [
    "/_app/../slots",
    "/_app//slots",
    "/_app/..",
    "/_app/%2e%2e/slots",
    "/_app\\..\\slots",
    "/queue/../metrics",
    "/queue/%2e%2e/metrics",
    "/queue/..%2fmetrics",
    "/queue//metrics",
    "//v1/models",
]
"""Below paths that are open with all that is below them, and an open path that is not normal."""

ONE_METHOD = [
    ("GET", "/index.html"),
    ("POST", "/props"),
    ("POST", "/lora-adapters"),
    ("POST", "/models"),
]
ONE_METHOD += [("DELETE", "/models"), ("POST", "/lora%2Dadapters"), ("POST", "/x/../props/")]

UNKNOWN = [("GET", COMPLETION), ("POST", "/prefix/v1/completions"), ("POST", "/sw.js")]
UNKNOWN += [("GET", "/SLOTS"), ("GET", "/prefix/slots"), ("PUT", "/v1/models"), ("GET", "/v2")]
MODELS = [("GET", "/v1/models/tiny"), ("HEAD", "/models/org%2Ftiny")]


@pytest.mark.parametrize(
    ("mode", "is_shared"), [*((mode, False) for mode in Mode), (Mode.DISCOVERY, True)]
)
async def test_closed_paths_are_rejected_by_the_routes_in_every_disguise(
    tmp_path: Path, mode: Mode, is_shared: bool
) -> None:
    """With the picker dead, so nobody else can have refused them; no server sees any. Also on a
    listener that normalises no path."""
    options = options_with(PATIENT, mode=mode, blocked_paths=("GET /index.html",))
    async with rig(tmp_path, options, is_shared=is_shared) as it:
        await it.picker.kill()
        tricks = [*TRICKS, *(DETOURS if is_shared else ())]
        tries = [(method, path) for path in tricks for method in ("GET", "POST", "HEAD")]
        is_closed = mode is Mode.ORIGINAL_DST  # without a picker; a shared one unescapes nothing
        models = [] if is_closed else MODELS[: 1 if is_shared else 2]
        for method, path in [*tries, *ONE_METHOD, *UNKNOWN, *models]:
            answer = await ask(it.envoy.port, method, path)
            is_unknown = (method, path) in [*UNKNOWN, *models]
            assert answer.status == (404 if is_unknown else 403), (method, path)
            reason = "unknown-path" if is_unknown else "blocked-path"
            assert answer.headers[header_names.REASON] == reason
            assert answer.headers["content-type"] == "application/json"
            assert READABLE.items() <= answer.headers.items()
            if method != "HEAD":
                error = httpx.Response(403, content=answer.body).json()["error"]
                assert set(error) == {"message", "type", "code"}
        for path in TRICKS:
            assert (await ask(it.envoy.port, "OPTIONS", path)).status == 200, path
        assert it.first.reached == it.second.reached == []


NEIGHBOURS = [APP, "//app", "/%2fapp", "/x/../app", "/%61pp", "\\app", "/app/", "/nowhere"]
NAMED = {
    "x-request-id": "3f0f5a2e-1111-4222-8333-444455556666",
    "x-envoy-upstream-rq-timeout-ms": "7",
    "x-gateway-destination-endpoint": "10.0.0.1:80",
}


async def test_the_routes_of_a_neighbour_are_as_they_were(tmp_path: Path) -> None:
    """With the printed parts on its listener: what was 200 is 200, with the same headers at the
    application, and no path is its application's that was not."""
    options = at_free_ports(PATIENT)
    async with running_envoy(options, tmp_path, as_before(options)) as envoy:
        before = await _seen_by_neighbour(envoy.port)
    async with rig(tmp_path, is_shared=True) as it:
        after = await _seen_by_neighbour(it.envoy.port)
    for path in NEIGHBOURS:
        if before[path][0] == 200:
            assert after[path] == before[path], path
        else:
            assert after[path][0] in {400, 403, 404}, path
    assert before[APP][0] == 200 and before["//app"][0] == before["/%2fapp"][0] == 404


async def _seen_by_neighbour(port: int) -> dict[str, tuple[int, dict[str, str]]]:
    found = {}
    for path in NEIGHBOURS:
        answer = await ask(port, "GET", path, headers=NAMED)
        seen = {name: value for name, value in answer.headers.items() if name.startswith("seen-")}
        seen.pop("seen-x-request-id", None)
        found[path] = (answer.status, seen)
    return found


async def test_a_client_cannot_steer_on_a_shared_listener(tmp_path: Path) -> None:
    """Its control headers are removed before the picker and the router read them, also with no
    picker to ask, and a request that takes long is not ended by the listener's idle timeout."""
    async with rig(tmp_path, PATIENT, is_shared=True) as it:
        forged = dict.fromkeys((header_names.DESTINATION, header_names.SUBSET), it.second.address)
        forged |= {header_names.CLIENT: "boss", "x-envoy-upstream-rq-timeout-ms": "1"}
        for _ in range(5):
            answer = await it.client.post(COMPLETION, json={}, headers=forged)
            assert answer.status_code == 200
        assert len(it.first.reached) == 5 and not it.second.reached
        await it.picker.kill()
        it.forget()
        forged[header_names.DESTINATION] = it.dead
        for _ in range(10):
            assert (await it.client.post(COMPLETION, json={}, headers=forged)).status_code == 200
        seen = [request.headers for server in it.servers for request in server.reached]
        assert not any({header_names.DESTINATION, header_names.CLIENT} & set(each) for each in seen)


BROKEN_PATHS = ["/slots#a", "/slots%00", "slots", "\\slots"]


async def test_paths_that_are_none_are_rejected_and_reach_nobody(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        for path in BROKEN_PATHS:
            assert (await ask(it.envoy.port, "GET", path)).status in {0, 400}, path
        assert it.first.reached == it.second.reached == []


OPEN_PATHS = [
    ("GET", "/props"),
    ("GET", "/models"),
    ("HEAD", "/health"),
    ("GET", "/_app/immutable/bundle.1a2b.js"),
]
OPEN_PATHS += [("GET", "/v1/models"), ("POST", COMPLETION), ("GET", "/"), ("GET", "/ours/a%20b")]
OPEN_PATHS += [("POST", "/llama/v1/completions"), ("GET", "/llama"), ("GET", "/llama/")]


async def test_with_the_picker_dead_other_paths_are_served_by_all_live_servers(
    tmp_path: Path,
) -> None:
    more = (*PATIENT.envoy.open_paths, "GET /ours*")
    async with rig(tmp_path, options_with(PATIENT, path_prefix="/llama", open_paths=more)) as it:
        await it.picker.kill()
        for method, path in OPEN_PATHS:
            assert (await ask(it.envoy.port, method, path)).status == 200, (method, path)
        while not all(server.reached for server in it.servers):
            assert (await it.client.post(COMPLETION, json={})).status_code == 200


async def test_a_client_cannot_steer(tmp_path: Path) -> None:
    """Neither past a living picker, nor with none to ask; nor does it say when it arrived. No
    control header reaches a server."""
    async with rig(tmp_path, options_with(PATIENT, has_fronts=True)) as it:
        forged = dict.fromkeys((header_names.DESTINATION, header_names.SUBSET), it.second.address)
        forged |= {header_names.SERVED: it.second.address, "x-envoy-max-retries": "9"}
        forged |= dict.fromkeys((header_names.ARRIVED_AT, *header_names.CONTROL_HEADERS), "7")
        began = time.time()
        for _ in range(5):
            await it.client.post(COMPLETION, json={}, headers=forged)
        assert len(it.picker.arrivals) == 5
        assert all(began - 0.001 <= float(each) <= time.time() for each in it.picker.arrivals)
        assert len(it.first.reached) == 5 and not it.second.reached

        it.forget()
        await it.picker.kill()
        forged[header_names.DESTINATION] = it.dead
        for _ in range(20):
            assert (await it.client.post(COMPLETION, json={}, headers=forged)).status_code == 200
        seen = [request.headers for server in it.servers for request in server.reached]
        ours = {*header_names.CONTROL_HEADERS, header_names.ARRIVED_AT}
        assert not [
            name
            for headers in seen
            for name in headers
            if name.startswith(("x-gateway-", "x-envoy-max")) or name in ours
        ]


async def test_original_dst_goes_only_where_the_picker_says(tmp_path: Path) -> None:
    """A forged header moves nothing; no answer, or more than one address, is a 503."""
    async with rig(tmp_path, options_with(PATIENT, mode=Mode.ORIGINAL_DST)) as it:
        it.picker.sends_header = False
        forged = {header_names.DESTINATION: it.second.address}
        assert (await it.client.post(COMPLETION, json={}, headers=forged)).status_code == 200
        assert it.first.reached and not it.second.reached

        for destinations in (f"{it.first.address},{it.second.address}", "nowhere", ""):
            it.picker.destinations = destinations
            assert (await it.client.post(COMPLETION, json={}, headers=forged)).status_code == 503
        await it.picker.kill()
        assert (await it.client.post(COMPLETION, json={}, headers=forged)).status_code == 503
        assert not it.second.reached


async def test_the_list_is_walked_past_the_dead_and_the_loading(tmp_path: Path) -> None:
    """Also for a body of 3 MB; the server that answered is told, and the try it was."""
    async with rig(tmp_path) as it:
        it.first.status = 503
        it.picker.destinations = f"{it.dead},{it.first.address},{it.second.address}"
        answer = await it.client.post(COMPLETION, content=b"x" * 3_000_000)
        assert answer.status_code == 200
        assert [request.body_bytes for request in it.second.reached] == [3_000_000]
        assert header_names.DESTINATION not in it.second.reached[0].headers
        facts = await it.picker.wait_for("served")
        assert facts["upstream.address"] == it.second.address
        assert facts["upstream.request_attempt_count"] == 3
        assert not facts["metadata"], "what the picker said itself is not sent back"


async def test_metadata_alone_is_enough_to_choose(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.picker.sends_header = False
        it.picker.destinations = it.second.address
        for _ in range(5):
            await it.client.post(COMPLETION, json={})
        assert len(it.second.reached) == 5


async def test_a_body_longer_than_the_buffer_goes_through_once(tmp_path: Path) -> None:
    async with rig(tmp_path, options_with(PATIENT, body_buffer_bytes=65_536)) as it:
        answer = await it.client.post(COMPLETION, content=b"x" * 3_000_000)
        assert answer.status_code == 200
        assert it.first.reached[0].body_bytes == 3_000_000

        it.picker.destinations = f"{it.dead},{it.first.address}"
        answer = await it.client.post(COMPLETION, content=b"x" * 3_000_000)
        assert answer.status_code == 503
        assert set(answer.json()["error"]) == {"message", "type", "code"}


async def test_the_fallback_avoids_a_server_whose_health_check_fails(tmp_path: Path) -> None:
    """Until it is well again; and with all of them unwell there is no panic, but 503."""
    async with rig(tmp_path, PATIENT) as it:
        await it.picker.kill()
        it.first.health_status = 503
        await _until_healthy(it, {it.second.address})
        it.forget()
        for _ in range(10):
            assert (await it.client.post(COMPLETION, json={})).status_code == 200
        assert not it.first.reached

        it.second.health_status = 503
        await _until_healthy(it, set())
        assert (await it.client.post(COMPLETION, json={})).status_code == 503
        it.first.health_status = 200
        await _until_healthy(it, {it.first.address})
        assert (await it.client.post(COMPLETION, json={})).status_code == 200


async def _until_healthy(it: Rig, wanted: set[str]) -> None:
    """Wait until Envoy counts exactly these servers as healthy."""
    async with asyncio.timeout(20):
        while True:
            page = (await it.client.get(f"{it.envoy.admin_url}/clusters?format=json")).json()
            llama = next(c for c in page["cluster_statuses"] if c["name"] == "llama")
            healthy = set()
            for host in llama["host_statuses"]:
                place = host["address"]["socket_address"]
                if "failed_active_health_check" not in host["health_status"]:
                    healthy.add(f"{place['address']}:{place['port_value']}")
            if healthy == wanted:
                return
            await asyncio.sleep(0.05)


async def test_hosts_are_rewritten_only_where_it_is_wanted(tmp_path: Path) -> None:
    for wanted, host in ((True, "first.internal"), (False, None)):
        async with rig(tmp_path, options_with(PATIENT, host_rewrite=wanted)) as it:
            await it.client.post(COMPLETION, json={})
            expected = host or f"{LOOPBACK}:{it.envoy.port}"
            assert it.first.reached[0].headers["host"] == expected


async def test_a_finished_answer_sends_no_report(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        async with it.client.stream("POST", f"{COMPLETION}/stream") as answer:
            chunks = answer.aiter_raw()
            await anext(chunks)
            assert "end" not in [kind for kind, _ in it.picker.heard]
            it.first.stop_streaming.set()
            async for _ in chunks:
                pass
        await it.picker.wait_for("end")
        assert [kind for kind, _ in it.picker.heard] == ["headers", "served", "end"]


@pytest.mark.parametrize("who", ["client", "server"])
async def test_an_answer_that_broke_off_is_reported(tmp_path: Path, who: str) -> None:
    """With what the picker had put into the metadata, so that it knows its exchange again."""
    async with rig(tmp_path) as it:
        async with it.client.stream("POST", f"{COMPLETION}/stream") as answer:
            chunks = answer.aiter_raw()
            await anext(chunks)
            if who == "server":
                it.first.break_off.set()
                with pytest.raises(httpx.RemoteProtocolError):
                    async for _ in chunks:
                        pass
        report = await it.picker.wait_for("report")
        assert report[header_names.DESTINATION] == report[header_names.SERVED] == it.first.address
        await it.picker.wait_for("end")


async def test_a_client_that_leaves_the_queue_ends_its_stream(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.picker.holds = True
        asking = asyncio.create_task(it.client.post(COMPLETION, json={}))
        await it.picker.wait_for("headers")
        asking.cancel()
        assert await it.picker.wait_for("end") == COMPLETION
        assert not it.first.reached


@pytest.mark.parametrize(("mode", "status"), [(Mode.DISCOVERY, 200), (Mode.ORIGINAL_DST, 504)])
async def test_a_picker_that_hangs_is_passed_over(tmp_path: Path, mode: Mode, status: int) -> None:
    async with rig(tmp_path, options_with(mode=mode, message_timeout_s=0.2)) as it:
        it.picker.hangs = True
        assert (await it.client.post(COMPLETION, json={})).status_code == status


async def test_a_picker_that_comes_late_or_back_is_found(tmp_path: Path) -> None:
    """Envoy opens its door without it, and asks it once it is there."""
    port = free_port()
    options = options_with(picker=HostPort(LOOPBACK, port), discovery_timeout_s=0.2)
    async with (
        echo_server() as server,
        running_envoy(options, tmp_path) as envoy,
        httpx.AsyncClient(base_url=envoy.url, timeout=PATIENCE_S) as client,
    ):
        assert (await client.post(COMPLETION, json={})).status_code == 503
        for _ in range(2):
            picker = FixedPicker(fleet=[server.address], destinations=server.address, port=port)
            async with fixed_picker(picker), asyncio.timeout(20):
                while not picker.heard:
                    await client.post(COMPLETION, json={})
                    await asyncio.sleep(0.05)


async def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    """After `per_try_idle_timeout_s`, in the shape of OpenAI's errors, and not tried elsewhere."""
    async with rig(tmp_path, options_with(PATIENT, per_try_idle_timeout_s=0.3)) as it:
        it.picker.destinations = f"{it.first.address},{it.second.address}"
        answer = await it.client.post(f"{COMPLETION}/silent", json={})
        assert answer.status_code == 504
        assert answer.json()["error"]["type"] == "server_error"
        assert not it.second.reached


async def test_a_client_that_dawdles_over_its_headers_is_rejected(tmp_path: Path) -> None:
    async with rig(tmp_path, options_with(PATIENT, request_headers_timeout_s=0.3)) as it:
        reader, writer = await asyncio.open_connection(LOOPBACK, it.envoy.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost:")
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_upgrades_and_tunnels_are_rejected(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        upgrade = {"upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "a"}
        answer = await ask(it.envoy.port, "GET", "/v1/models", upgrade | {"connection": "upgrade"})
        assert answer.status in {400, 403}
        assert (await ask(it.envoy.port, "CONNECT", "127.0.0.1:22")).status in {400, 404}
        assert it.first.reached == it.second.reached == []


async def test_log_lines_hold_no_query_and_no_key(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        secrets = {"authorization": "Bearer sk-hush", "x-request-id": "mine-1"}
        answer = await it.client.get("/v1/models?api_key=sk-hush", headers=secrets)
        assert answer.headers["x-request-id"] == "mine-1"
    lines = it.envoy.child.log_tail(100)
    assert '"request_id":"mine-1"' in lines and '"path":"/v1/models"' in lines
    assert "sk-hush" not in lines


def begun_response(**part: Any) -> ProcessingResponse:
    """A part of a response that the picker streams in place of a server."""
    message = Streamed(streamed_immediate_response=StreamedImmediateResponse(**part))
    return ProcessingResponse.FromString(bytes(message))


@pytest.mark.parametrize("mode", [Mode.DISCOVERY, Mode.GATEWAY])
async def test_a_response_that_the_picker_began_cannot_go_on_at_a_server(
    tmp_path: Path, mode: Mode
) -> None:
    """So nothing can be sent to a client that is queued (decision 0194): Envoy streams what the
    picker says, but cuts the response when the picker names a server."""
    head = HeaderMap(headers=[HeaderValue(key=":status", raw_value=b"200")])
    comment = b": queued\n\n"
    async with rig(tmp_path, options_with(PATIENT, mode=mode)) as it:
        it.picker.before = (
            begun_response(headers_response=HttpHeaders(headers=head)),
            begun_response(body_response=StreamedBodyResponse(body=comment)),
        )
        async with it.client.stream("POST", COMPLETION, json={}) as answer:
            assert answer.status_code == 200
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                assert b"".join([piece async for piece in answer.aiter_bytes()]) == comment
        assert not it.first.reached and not it.second.reached
