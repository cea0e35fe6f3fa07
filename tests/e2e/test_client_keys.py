"""Clients' keys over the real Envoy: which open, from when on, until when, and who says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from extproc.app.envoy import envoy_options
from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import free_port
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.snippet import snippet
from extproc.settings import Settings
from extproc.settings.client_keys_file import add_key, new_key, revoke_keys
from tests.e2e.foreign_envoy import dropped_in
from tests.e2e.one_process import Running, running
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.patience import PATIENCE_S

pytestmark = [pytest.mark.e2e]

DAY = "2026-01-31"
LENGTHS = (*range(4, 8), *range(50, 70), *range(115, 125), 512)
"""Of keys: around the ends of the blocks of SHA-256, and the longest."""
OTHERS = 5_000
"""Further keys in the file."""


def parts(options: EnvoyOptions) -> str:
    """The file of an Envoy that was there before, with the printed parts in it."""
    return dropped_in(snippet(options, serves_cluster=True), options)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def until_answered(stack: Running, key: str, status: int) -> None:
    """Ask until the key opens or stops opening."""
    async with asyncio.timeout(PATIENCE_S):
        while (await stack.client.get("/props", headers=bearer(key))).status_code != status:  # noqa: ASYNC110  # Envoy tells no event
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("printed", [bootstrap, parts])
async def test_keys_open_while_they_are_in_the_file(
    tmp_path: Path, printed: Callable[[EnvoyOptions], str]
) -> None:
    """Envoy is never restarted: a key that is added opens, one that is revoked does not, a file
    with a mistake changes nothing, and all of that stays so when the picker is gone."""
    file = tmp_path / "keys"
    file.write_text("web sk-web\n", encoding="ascii")
    async with FakeLlamaServer() as server:
        values = {"endpoints": [str(server.address)], "clients": {"keys_file": str(file)}}
        async with running(tmp_path, values, printed=printed) as stack:
            key = new_key()
            add_key(file, "batch", key, DAY)
            await until_answered(stack, key, 200)
            answer = await stack.client.get("/props?mine=1", headers={"x-api-key": key})
            assert answer.status_code == 200
            (asked,) = [asked for asked in server.asked if "mine" in asked.query]
            assert asked.headers["x-coxswain-client"] == "batch"
            assert key not in str(asked.headers)
            revoke_keys(file, "batch")
            await until_answered(stack, key, 401)
            whole = file.read_text()
            file.write_text(f"{whole}nonsense\n", encoding="ascii")
            await until_problem(stack)
            assert (await stack.client.get("/props", headers=bearer("sk-web"))).status_code == 200
            await stack.service.stop()
            assert (await stack.client.get("/props", headers=bearer("sk-web"))).status_code == 200
            rejected = await stack.client.get("/props", headers=bearer(key))
            assert (rejected.status_code, rejected.headers["www-authenticate"]) == (401, "Bearer")
            assert rejected.json()["error"]["code"] == "invalid-api-key"


async def until_problem(stack: Running) -> None:
    """The picker says that something is wrong."""
    pages = f"http://127.0.0.1:{stack.service.http_port}"
    async with asyncio.timeout(PATIENCE_S):
        while "clients.keys_file" not in (await stack.client.get(f"{pages}/status")).text:  # noqa: ASYNC110  # nor does the page
            await asyncio.sleep(0.02)


async def test_envoy_computes_the_digests_that_everybody_does(tmp_path: Path) -> None:
    """Of keys of all lengths, among thousands of others; and of nothing else."""
    keys = {f"client-{length}": "k" * length for length in LENGTHS}
    file = tmp_path / "keys"
    lines = [f"{name} {key}" for name, key in keys.items()]
    others = [f"other-{number} sha256:{number:064x}" for number in range(OTHERS)]
    file.write_text("\n".join(["web sk-web", *others, *lines, ""]), encoding="ascii")
    async with FakeLlamaServer() as server:
        values = {"endpoints": [str(server.address)], "clients": {"keys_file": str(file)}}
        async with running(tmp_path, values) as stack:
            for name, key in keys.items():
                answer = await stack.client.get(f"/props?name={name}", headers=bearer(key))
                assert answer.status_code == 200, name
            shown = {
                asked.query["name"][0]: asked.headers["x-coxswain-client"]
                for asked in server.asked
                if "name" in asked.query
            }
            assert shown == {name: name for name in keys}
            good = "k" * 64
            for wrong in (
                {},
                {"authorization": "Bearer"},
                bearer("k" * 49),
                bearer("k" * 513),
                bearer(f"{0:064x}"),
                bearer(f"sha256:{0:064x}"),
                {"authorization": f"Basic {good}"},
                {"authorization": f"Bearer {good}, Bearer {good}"},
                {"x-coxswain-client": "web"},
            ):
                assert (await stack.client.get("/props", headers=wrong)).status_code == 401, wrong
            for right in (
                {"authorization": f"bearer {good}"},
                {"authorization": "Bearer of-another-gate", "x-api-key": good},
            ):
                assert (await stack.client.get("/props", headers=right)).status_code == 200, right


async def test_an_envoy_that_never_heard_of_any_key_lets_nobody_in(tmp_path: Path) -> None:
    """It waits for a picker, and says so meanwhile."""
    place = f"127.0.0.1:{free_port()}"
    file = tmp_path / "keys"
    file.write_text("web sk-web\n", encoding="ascii")
    settings = Settings.model_validate(
        {
            "endpoints": ["127.0.0.1:9"],
            "clients": {"keys_file": str(file)},
            "listen": {"grpc": f"127.0.0.1:{free_port()}"},
            "envoy": {
                "listen": place,
                "admin": f"127.0.0.1:{free_port()}",
                "discovery_timeout_s": 0.1,
            },
        }
    )
    config = tmp_path / "envoy.yaml"
    config.write_text(bootstrap(envoy_options(settings)), encoding="utf-8")
    command = [find_envoy(), "-c", config, "--concurrency", "1", "--use-dynamic-base-id"]
    process = await asyncio.create_subprocess_exec(*map(str, command), "-l", "error")
    try:
        async with httpx.AsyncClient(base_url=f"http://{place}", timeout=PATIENCE_S) as client:
            answer = await _first_answer(client)
    finally:
        process.terminate()
        await process.wait()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "keys-unknown"


async def _first_answer(client: httpx.AsyncClient) -> httpx.Response:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await client.get("/props", headers=bearer("sk-web"))
            except httpx.TransportError:
                await asyncio.sleep(0.05)
