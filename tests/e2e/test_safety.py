"""Keys and certificates over the real Envoy: who may come in, and what each server is shown."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.app import Service
from extproc.app.envoy import envoy_options
from extproc.core.endpoint import SERVING
from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import free_port
from extproc.envoy_config.documents import bootstrap
from extproc.settings import Settings
from tests.fakes.authority import Authority, Pair
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.picker import until

pytestmark = [pytest.mark.e2e]

FREE = "127.0.0.1:0"


@asynccontextmanager
async def running(folder: Path, values: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    """A picker and the Envoy that its settings print; a client of that Envoy."""
    listen = {"grpc": f"127.0.0.1:{free_port()}", "admin": FREE, "http": FREE}
    envoy: dict[str, Any] = {
        "listen": f"127.0.0.1:{free_port()}",
        "admin": f"127.0.0.1:{free_port()}",
    }
    envoy |= {"countdown": False, **values.pop("envoy", {})}
    settings = Settings.model_validate(
        {"listen": listen, "envoy": envoy, "drain_timeout_s": 0, **values}
    )
    file = folder / "envoy.yaml"
    file.write_text(bootstrap(envoy_options(settings)), encoding="utf-8")
    service = Service(settings)
    await service.start()
    command = [find_envoy(), "-c", file, "--concurrency", "1", "--use-dynamic-base-id"]
    process = await asyncio.create_subprocess_exec(*map(str, command), "-l", "warning")
    try:
        await until(lambda: any(each.health in SERVING for each in service.dispatcher.fleet))
        async with httpx.AsyncClient(base_url=f"http://{settings.envoy.listen}") as client:
            await _until_steered(client)
            yield client
    finally:
        process.terminate()
        await process.wait()
        await service.stop()


async def _until_steered(client: httpx.AsyncClient) -> None:
    """Envoy listens, and its picker has told it the fleet."""
    async with asyncio.timeout(20):
        while True:
            try:
                answer = await client.get("/health", headers={"authorization": "Bearer sk-web"})
            except httpx.TransportError:
                answer = None
            if answer is not None and "x-coxswain-endpoint" in answer.headers:
                return
            await asyncio.sleep(0.05)


def server_side(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    return context


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
        async with running(tmp_path, values) as client:
            refused = await client.get("/props")
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid-api-key"
            wrong = await client.get("/props", headers={"authorization": "Bearer sk-llama"})
            assert wrong.status_code == 401
            forged = {"authorization": "Bearer sk-web", "x-coxswain-client": "boss"}
            assert (await client.get("/props?mine=1", headers=forged)).status_code == 200
            (asked,) = [asked for asked in server.asked if "mine" in asked.query]
            assert asked.headers["authorization"] == "Bearer sk-llama"
            assert asked.headers["x-coxswain-client"] == "web"
            assert "sk-web" not in str(asked.headers)


async def test_a_server_behind_tls(tmp_path: Path) -> None:
    """Looked at and served over TLS, by an authority of its own; a stranger's is not believed."""
    authority = Authority(tmp_path)
    async with FakeLlamaServer(tls=server_side(authority.issue("server"))) as server:
        endpoint = {
            "address": f"https://{server.address}",
            "ca_file": str(authority.ca),
            "server_name": "localhost",
        }
        async with running(tmp_path, {"endpoints": [endpoint]}) as client:
            answer = await client.get("/props?mine=1")
            assert answer.status_code == 200
            assert answer.headers["x-coxswain-endpoint"] == str(server.address)
