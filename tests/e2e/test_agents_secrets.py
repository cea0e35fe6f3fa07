"""Agents as processes, with keys and CAs that change while requests flow, over the real
Envoy: clients know no key, the picker has no file of them, and nobody restarts anything."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.one_process import Running, running
from tests.e2e.secured import KEY, Secured, secured
from tests.e2e.steady_load import COMPLETION, answers, load_on
from tests.fakes.authority import Authority
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.picker import until

pytestmark = pytest.mark.e2e

RENEWED = "sk-renewed"


@asynccontextmanager
async def agent_of(secret: Secured, stack: Running, log: Path) -> AsyncIterator[None]:
    """Its process, which takes its leave at the end; what it says is in `log` then."""
    lines = log.open("wb")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extproc.cli", "agent"),
        *("--picker", f"127.0.0.1:{stack.service.admin_port}"),
        *("--llama", f"https://{secret.server.address}", "--server-ca", str(secret.authority.ca)),
        *("--advertise", f"https://{secret.tap.address}"),
        *("--api-key-file", str(secret.key_file), "--inject-key"),
        stdout=lines,
        stderr=lines,
    )
    lines.close()
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        assert await process.wait() == 0


async def test_an_agent_offers_its_servers_key_and_follows_its_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another key, then other CAs: both count at the agent, the picker and Envoy; and
    nobody says a key."""
    caplog.set_level("DEBUG", logger="coxswain")
    log = tmp_path / "agent.log"
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        answers(plain, secret.server)
        async with running(tmp_path, {"endpoints": [str(plain.address)]}) as stack:
            async with load_on(stack) as load, agent_of(secret, stack, log):
                await load.grows(5, plain.address)
                await load.grows(5, secret.tap.address)

                secret.server.api_key = None  # it takes both
                secret.key_file.write_text(RENEWED)
                spoken = f"Bearer {RENEWED}"
                await until(lambda: shown(secret, "/slots") == spoken)
                await until(lambda: shown(secret, COMPLETION) == spoken)
                secret.server.api_key = RENEWED
                await load.grows(5, secret.tap.address)

                fresh = Authority(tmp_path, "fresh")
                both = secret.authority.ca.read_bytes() + fresh.ca.read_bytes()
                before = profile(stack, secret)
                secret.authority.ca.write_bytes(both)
                await until(lambda: profile(stack, secret) != before)
                pair = fresh.issue("renewed")
                assert secret.server.tls is not None
                secret.server.tls.load_cert_chain(pair.cert, pair.key)
                await load.grows(5, secret.tap.address)
            assert shown(secret, COMPLETION) == spoken
            mine = {"authorization": "Bearer of-a-client"}
            await until(lambda: secret.tap.address not in stack.service.dispatcher.fleet)
            await stack.client.post(f"{COMPLETION}?mine=1", json={}, headers=mine)
            assert plain.newest(COMPLETION).headers["authorization"] == mine["authorization"]
            assert secret.tap.in_the_clear == []
            async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.service.admin_port}") as port:
                told = str(await AdminStub(port).ListEndpoints(pb.ListEndpointsRequest()))
            page = f"http://127.0.0.1:{stack.service.http_port}/status"
            told += (await stack.client.get(page)).text + caplog.text + log.read_text()
            assert "connected to the picker" in told and str(secret.tap.address) in told
            assert RENEWED not in told and KEY not in told


def shown(secret: Secured, path: str) -> str:
    """The key that came with the newest request of this path."""
    return secret.server.newest(path).headers.get("authorization", "")


def profile(stack: Running, secret: Secured) -> str:
    return stack.endpoint(secret.tap.address).spec.tls_profile
