"""Clients' keys over the real Envoy: which open, from when on and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest

from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.snippet import snippet
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.settings.client_keys_file import add_key, new_key, revoke_keys, rotate_key
from tests.e2e.foreign_envoy import dropped_in
from tests.e2e.one_process import Running, running
from tests.fakes import envoy_text
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import until

pytestmark = [pytest.mark.e2e]

DAY = "2026-01-31"


def parts(options: EnvoyOptions) -> str:
    """The file of an Envoy that was there before, with the printed parts in it."""
    return dropped_in(snippet(options, serves_cluster=True), options)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def until_answered(stack: Running, key: str, status: int) -> None:
    """Ask until the key opens or stops opening."""
    async with asyncio.timeout(PATIENCE_S):
        while (await stack.client.get("/props", headers=bearer(key))).status_code != status:  # noqa: ASYNC110  # the file tells no event
            await asyncio.sleep(0.02)


async def until_problem(stack: Running) -> None:
    """The picker says that something is wrong."""
    pages = f"http://127.0.0.1:{stack.service.http_port}"
    async with asyncio.timeout(PATIENCE_S):
        while "clients.keys_file" not in (await stack.client.get(f"{pages}/status")).text:  # noqa: ASYNC110  # nor does the page
            await asyncio.sleep(0.02)


async def test_a_request_that_waits_with_a_revoked_key_is_rejected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one with the same `x-request-id` waits on, and is found by this id. Operators see
    whose requests they are, in the queue and when they have ended."""
    caplog.set_level("INFO", logger="coxswain.request")
    file = tmp_path / "keys"
    file.write_text("web sk-web\nbatch sk-batch\n", encoding="ascii")
    async with FakeLlamaServer(busy=(True,)) as server:
        values = {"endpoints": [str(server.address)], "clients": {"keys_file": str(file)}}
        async with running(tmp_path, values) as stack:

            async def ask(key: str) -> httpx.Response:
                headers = bearer(key) | {"x-request-id": "same"}
                return await stack.client.post(
                    "/completion", json={"prompt": "row"}, headers=headers
                )

            def is_queued(count: int) -> bool:
                return len(stack.service.dispatcher.queue) == count

            asking = []
            for number, key in enumerate(("sk-web", "sk-batch"), start=1):
                asking.append(asyncio.create_task(ask(key)))
                await until(partial(is_queued, number))
            page = f"http://127.0.0.1:{stack.service.http_port}/queue/same"
            for key in ("sk-web", "sk-batch"):
                found = await stack.client.get(page, headers=bearer(key))
                assert (found.status_code, found.json()["queued"]) == (200, 2)
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{stack.service.admin_port}")
            async with channel:
                for client, names in (("", ["web", "batch"]), ("web", ["web"])):
                    asked = pb.ListRequestsRequest(client=client)
                    listed = await AdminStub(channel).ListRequests(asked)
                    assert [each.client for each in listed.requests] == names
            pages = f"http://127.0.0.1:{stack.service.http_port}"
            shown = (await stack.client.get(f"{pages}/activity")).json()["requests"]
            assert [each["client"] for each in shown["queued"]] == ["web", "batch"]
            revoke_keys(file, "batch")
            rejected = await asking[1]
            assert rejected.status_code == 401
            assert rejected.headers["x-coxswain-reason"] == "invalid-api-key"
            found = await stack.client.get(page, headers=bearer("sk-web"))
            assert (found.json()["queue_position"], found.json()["queued"]) == (1, 1)
            asking[0].cancel()
            await until(lambda: is_queued(0))
            shown = (await stack.client.get(f"{pages}/activity")).json()["requests"]
            assert [each["client"] for each in shown["ended"]] == ["web", "batch"]
    assert "client=batch" in caplog.text


@pytest.mark.parametrize("printed", [envoy_text.printed, parts])
async def test_keys_open_while_they_are_in_the_file(
    tmp_path: Path,
    printed: Callable[[EnvoyOptions], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is restarted: a key that is added opens, one that is revoked does not, and a file
    with a mistake changes nothing. When the picker is gone, nobody passes. No log has a key."""
    caplog.set_level("DEBUG", logger="coxswain")
    file = tmp_path / "keys"
    file.write_text("web sk-web\n", encoding="ascii")
    async with FakeLlamaServer() as server:
        values = {"endpoints": [str(server.address)], "clients": {"keys_file": str(file)}}
        values |= {"envoy": {"health": True}}
        async with running(tmp_path, values, printed=printed) as stack:
            key = new_key()
            add_key(file, "batch", key, DAY)
            await until_answered(stack, key, 200)
            answer = await stack.client.get("/props?mine=1", headers={"x-api-key": key})
            assert answer.status_code == 200
            (asked,) = [asked for asked in server.asked if "mine" in asked.query]
            assert asked.headers["x-coxswain-client"] == "batch"
            assert key not in str(asked.headers)
            pages = f"http://127.0.0.1:{stack.service.http_port}"
            assert (await stack.client.get(f"{pages}/queue/any")).status_code == 401
            found = await stack.client.get(f"{pages}/queue/any", headers=bearer(key))
            assert found.status_code == 404
            revoke_keys(file, "batch")
            await until_answered(stack, key, 401)
            for path in ("/props", "/v1/models", "/", "/completion"):
                rejected = await stack.client.get(path, headers={"x-coxswain-client": "web"})
                assert rejected.status_code == (401 if path != "/completion" else 404), path
            whole = file.read_text()
            file.write_text(f"{whole}nonsense\n", encoding="ascii")
            await until_problem(stack)
            assert (await stack.client.get("/props", headers=bearer("sk-web"))).status_code == 200
            health = await stack.client.get("/health?mine=2")  # balancers have no key
            assert (health.status_code, health.json()["status"]) == (200, "ok")
            assert not [asked for asked in server.asked if "mine=2" in str(asked.query)]
            await stack.service.stop()
            for shown in (bearer("sk-web"), bearer(key), {}):
                lost = await stack.client.get("/props", headers=shown)
                assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
                assert lost.json()["error"]["code"] == "picker-lost"
        assert key not in caplog.text and "sk-web" not in caplog.text


async def test_a_key_is_rotated_without_an_interruption(tmp_path: Path) -> None:
    """Both open until the end of the overlap. A request that waits with the old one is rejected
    then, and the client reads why."""
    file = tmp_path / "keys"
    file.write_text("web sk-web\n", encoding="ascii")
    async with FakeLlamaServer(busy=(True,)) as server:
        values = {"endpoints": [str(server.address)], "clients": {"keys_file": str(file)}}
        async with running(tmp_path, values) as stack:
            key = new_key()
            rotate_key(file, "web", key, DAY, "2999-01-01")
            await until_answered(stack, key, 200)
            assert (await stack.client.get("/props", headers=bearer("sk-web"))).status_code == 200
            ask = stack.client.post("/completion", json={"prompt": "row"}, headers=bearer("sk-web"))
            asking = asyncio.create_task(ask)
            await until(lambda: len(stack.service.dispatcher.queue) == 1)
            text = file.read_text(encoding="ascii")
            file.write_text(text.replace("2999-01-01", "2020-01-01"), encoding="ascii")
            rejected = await asking
            assert rejected.status_code == 401
            assert rejected.headers["x-coxswain-reason"] == "invalid-api-key"
            late = await stack.client.get("/props", headers=bearer("sk-web"))
            assert late.status_code == 401 and "has expired" in late.json()["error"]["message"]
            assert (await stack.client.get("/props", headers=bearer(key))).status_code == 200
