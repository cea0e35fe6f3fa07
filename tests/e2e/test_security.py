"""Keys and certificates over the real Envoy: who may come in, and what each server is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from extproc.core.fleet.health import Health
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.snippet import snippet
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.foreign_envoy import OWN_PATH, dropped_in
from tests.e2e.one_process import Running, running, server_side
from tests.fakes import envoy_text
from tests.fakes.authority import Authority
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.otlp_receiver import otlp_receiver
from tests.fakes.picker import until

pytestmark = [pytest.mark.e2e]

COMPLETION = "/completion"


async def test_each_sees_the_right_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients show theirs to Envoy, Envoy the server's to the server, and nobody another's.

    Envoy and the picker speak mutual TLS meanwhile.
    """
    monkeypatch.setenv("MY_LLAMA_KEY", "sk-llama")
    keys = tmp_path / "keys"
    keys.write_text("# who may come in\nweb sk-web\n", encoding="ascii")
    authority = Authority(tmp_path)
    picker, envoy = authority.issue("picker"), authority.issue("envoy")
    async with FakeLlamaServer() as server:
        server.api_key = "sk-llama"
        values: dict[str, Any] = {
            "endpoints": [
                {
                    "address": str(server.address),
                    "api_key_env": "MY_LLAMA_KEY",
                    "inject_key": True,
                }
            ],
            "clients": {"keys_file": str(keys)},
            "grpc_tls": {
                "cert_file": str(picker.cert),
                "key_file": str(picker.key),
                "client_ca_file": str(authority.ca),
            },
            "envoy": {
                "picker_ca_file": str(authority.ca),
                "picker_cert_file": str(envoy.cert),
                "picker_key_file": str(envoy.key),
            },
        }
        async with running(tmp_path, values) as stack:
            client = stack.client
            rejected = await client.get("/props")
            assert rejected.status_code == 401
            assert rejected.json()["error"]["code"] == "invalid-api-key"
            wrong = await client.get("/props", headers={"authorization": "Bearer sk-llama"})
            assert wrong.status_code == 401
            forged = {"authorization": "Bearer sk-web", "x-coxswain-client": "boss"}
            assert (await client.get("/props?mine=1", headers=forged)).status_code == 200
            (asked,) = [asked for asked in server.asked if "mine" in asked.query]
            assert asked.headers["authorization"] == "Bearer sk-llama"
            assert asked.headers["x-coxswain-client"] == "web"
            assert "sk-web" not in str(asked.headers)


def parts(options: EnvoyOptions) -> str:
    """The file of an Envoy that was there before, with the printed parts in it."""
    return dropped_in(snippet(options, serves_cluster=True), options)


async def test_an_envoy_that_was_there_before_checks_the_servers_clients_alone(
    tmp_path: Path,
) -> None:
    """And says so in words, as the whole configuration does; its own routes answer as ever."""
    keys = tmp_path / "keys"
    keys.write_text("web sk-web\n", encoding="ascii")
    async with FakeLlamaServer() as server:
        values = {"endpoints": [str(server.address)], "clients": {"keys_file": str(keys)}}
        async with running(tmp_path, values, printed=parts) as stack:
            own = await stack.client.get(OWN_PATH)
            assert (own.status_code, own.text) == (401, "theirs")
            rejected = await stack.client.get("/props")
            assert rejected.status_code == 401
            assert rejected.json()["error"]["code"] == "invalid-api-key"
            web = {"authorization": "Bearer sk-web"}
            assert (await stack.client.get("/props?mine=1", headers=web)).status_code == 200
            (asked,) = [asked for asked in server.asked if "mine" in asked.query]
            assert asked.headers["x-coxswain-client"] == "web"
            assert "sk-web" not in str(asked.headers)
            closed = await stack.client.get("/slots", headers=web)
            assert closed.headers["x-coxswain-reason"] == "blocked-path"
            upgrade = {**web, "connection": "upgrade", "upgrade": "websocket"}
            rejected = await stack.client.get("/props", headers=upgrade)
            assert rejected.json()["error"]["code"] == "unsupported-http"
            crowded = {**web, **{f"x-{number}": "x" for number in range(90)}}
            rejected = await stack.client.get("/props", headers=crowded)
            assert (rejected.status_code, rejected.headers["x-coxswain-reason"]) == (
                431,
                "too-many-headers",
            )


@pytest.mark.parametrize("printed", [envoy_text.printed, parts])
@pytest.mark.parametrize("crowd", ["sk-web", "sk-web-2"])
async def test_whose_key_it_is_decides_the_turn(
    tmp_path: Path, printed: Callable[[EnvoyOptions], str], crowd: str
) -> None:
    """Envoy takes the keys away, and tells the picker whose they were. A client has one share,
    whatever the number of its keys."""
    keys = tmp_path / "keys"
    keys.write_text("web sk-web\nweb sk-web-2\nbatch sk-batch\n", encoding="ascii")
    async with FakeLlamaServer(busy=(False,)) as server:
        values = {"endpoints": [str(server.address)], "clients": {"keys_file": str(keys)}}
        async with running(tmp_path, values, printed=printed) as stack:
            held = {"authorization": "Bearer sk-web"}
            then = {"authorization": f"Bearer {crowd}"}
            last = {"x-api-key": "sk-batch"}
            assert await order(stack, server, held, then, then, last) == ["0", "3", "1", "2"]


@pytest.mark.parametrize("printed", [envoy_text.printed, parts])
async def test_no_client_can_say_whom_envoy_found(
    tmp_path: Path, printed: Callable[[EnvoyOptions], str]
) -> None:
    """Also where Envoy checks no keys at all: it takes the forged name away."""
    async with (
        FakeLlamaServer(busy=(False,)) as server,
        running(tmp_path, {"endpoints": [str(server.address)]}, printed=printed) as stack,
    ):
        mine = {"authorization": "Bearer sk-mine"}
        forged = {**mine, "x-coxswain-client": "another"}
        assert await order(stack, server, mine, mine, mine, forged) == ["0", "1", "2", "3"]


async def order(stack: Running, server: FakeLlamaServer, *asked: dict[str, str]) -> list[str]:
    """The requests with these headers, by their numbers, in the order in which the server got
    them: it works at the first until all others wait."""
    gate = asyncio.Event()
    server.replies[COMPLETION] = Reply(body=b"{}", gate=gate)
    tasks = []
    for number, headers in enumerate(asked):
        numbered = {**headers, "x-number": str(number)}
        sent = stack.client.post(COMPLETION, headers=numbered, timeout=30)
        tasks.append(asyncio.create_task(sent))
        line = stack.service.dispatcher.queue
        await until(lambda: len(line) == number and server.count(COMPLETION) == 1)  # noqa: B023
    gate.set()
    assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}
    return [each.headers["x-number"] for each in server.asked if each.path == COMPLETION]


async def test_a_server_behind_tls(tmp_path: Path) -> None:
    """Scraped and served over TLS, with a CA of its own; another CA is not accepted."""
    authority = Authority(tmp_path)
    async with FakeLlamaServer(tls=server_side(authority.issue("server"))) as server:
        endpoint = {
            "address": f"https://{server.address}",
            "ca_file": str(authority.ca),
            "server_name": "localhost",
        }
        async with running(tmp_path, {"endpoints": [endpoint]}) as stack:
            answer = await stack.client.get("/props?mine=1")
            assert answer.status_code == 200
            assert answer.headers["x-coxswain-endpoint"] == str(server.address)


async def test_a_servers_new_key_is_used_without_a_word(tmp_path: Path) -> None:
    """Only the content of its file changed: the scraper and Envoy show the new one, within
    seconds, and so they do with new CAs."""
    key_file = tmp_path / "key"
    key_file.write_text("sk-old")
    authority = Authority(tmp_path)
    async with FakeLlamaServer(tls=server_side(authority.issue("server"))) as server:
        server.api_key = "sk-old"
        endpoint = {
            "address": f"https://{server.address}",
            "ca_file": str(authority.ca),
            "api_key_file": str(key_file),
            "inject_key": True,
        }
        async with running(tmp_path, {"endpoints": [endpoint]}) as stack:
            assert (await stack.client.get("/props?mine=1")).status_code == 200
            server.api_key = "sk-new"
            key_file.write_text("sk-new")
            async with asyncio.timeout(20):
                while (await stack.client.get("/props?mine=1")).status_code != 200:  # noqa: ASYNC110  # Envoy tells no event
                    await asyncio.sleep(0.05)
            await until(lambda: ("/slots", "Bearer sk-new") in shown(server))
            await until(lambda: stack.endpoint(server.address).health is Health.READY)
            other = Authority(tmp_path, "other authority")
            authority.ca.write_bytes(b"")
            await stack.service.settings.refresh()
            assert stack.endpoint(server.address).health is Health.READY, "the old ones stay"
            authority.ca.write_bytes(other.ca.read_bytes())
            await until(lambda: stack.endpoint(server.address).health is Health.DOWN)


def shown(server: FakeLlamaServer) -> set[tuple[str, str]]:
    """Which keys it was shown with which path."""
    return {(asked.path, asked.headers.get("authorization", "")) for asked in server.asked}


async def test_a_server_that_is_tried_next_is_shown_its_own_key(tmp_path: Path) -> None:
    """Each try has the key of its server, and what the client sent where there is none."""
    keys = {"one": "sk-one", "two": "sk-two"}
    for name, key in keys.items():
        (tmp_path / name).write_text(key)
    async with FakeLlamaServer() as one, FakeLlamaServer() as two, FakeLlamaServer() as plain:
        for server in (one, two, plain):
            server.replies["/completion"] = Reply.of({}, 503)
        keyed = [
            {
                "address": str(server.address),
                "api_key_file": str(tmp_path / name),
                "inject_key": True,
            }
            for name, server in (("one", one), ("two", two))
        ]
        values = {"endpoints": [*keyed, str(plain.address)]}
        async with running(tmp_path, values) as stack:
            fleet = stack.service.dispatcher.fleet
            await until(lambda: all(each.is_pickable for each in fleet))
            mine = {"authorization": "Bearer sk-mine"}
            for server in (one, two, plain):
                while server.count("/completion") < 2:
                    await stack.client.post("/completion", json={}, headers=mine)
            assert await stack.statistic("upstream_rq_retry") > 0
            for server, key in ((one, "sk-one"), (two, "sk-two"), (plain, "sk-mine")):
                told = {a.headers["authorization"] for a in server.asked if a.path == "/completion"}
                assert told == {f"Bearer {key}"}


async def test_secrets_and_prompts_are_nowhere_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in logs at their most talkative, spans, metrics, pages, errors or operators' answers:
    of a request that is served, of one that is rejected, and of a server that rejects its key."""
    caplog.set_level("DEBUG", logger="coxswain")
    (tmp_path / "key").write_text("sk-of-the-server")
    async with FakeLlamaServer() as good, FakeLlamaServer() as strict, otlp_receiver() as otlp:
        good.replies["/completion"] = Reply.of({"content": "hush-answer"})
        strict.api_key = "sk-another"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.grpc_url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
        key = {"api_key_file": str(tmp_path / "key"), "inject_key": True}
        endpoints = [{"address": str(server.address), **key} for server in (good, strict)]
        values = {"endpoints": endpoints, "log": {"level": "debug"}}
        async with (
            running(tmp_path, values) as stack,
            grpc.aio.insecure_channel(f"127.0.0.1:{stack.service.admin_port}") as channel,
        ):
            mine = {"authorization": "Bearer sk-mine", "x-request-id": "mine"}
            bodies = ({"prompt": "hush-prompt"}, {"prompt": "hush-prompt", "model": 7})
            for body in bodies:
                await stack.client.post("/completion", json=body, headers=mine)
            admin = AdminStub(channel)
            pages = f"http://127.0.0.1:{stack.service.http_port}"
            read = [
                (await stack.client.get(f"{pages}/{page}")).text
                for page in ("status", "metrics", "readyz", "")
            ]
            read += [
                str(await admin.GetSettings(pb.GetSettingsRequest())),
                str(await admin.ListEndpoints(pb.ListEndpointsRequest())),
                str(await admin.ListRequests(pb.ListRequestsRequest())),
            ]
            await until(lambda: bool(otlp.spans()) and bool(otlp.metrics))
        read += [str(otlp.traces), str(otlp.metrics), caplog.text]
        assert "mine" in caplog.text, "the request was logged"
        for secret in ("sk-of-the-server", "sk-another", "sk-mine", "hush"):
            assert secret not in "".join(read), secret
