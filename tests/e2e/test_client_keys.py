"""Clients' keys over the real Envoy: which open, from when on and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.snippet import snippet
from extproc.settings.client_keys_file import add_key, new_key, revoke_keys
from tests.e2e.foreign_envoy import dropped_in
from tests.e2e.one_process import Running, running
from tests.fakes import envoy_text
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.patience import PATIENCE_S

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
                assert rejected.status_code == (401 if path != "/completion" else 403), path
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
