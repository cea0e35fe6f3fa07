"""Claims about what an agent may bring into the fleet, by the commands that people run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.stack import READY_S, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("llama")]


async def test_no_agent_makes_envoys_admin_pages_a_server(tmp_path: Path) -> None:
    """The picker rejects it, whatever the agent says of it; its server's own address is taken."""
    async with Stack.running(tmp_path, slots=(), settings=QUICK) as stack:
        server = await stack.add_server(1)
        command = [
            *(sys.executable, "-m", "extproc.cli", "agent"),
            *("--picker", f"127.0.0.1:{stack.admin_port}"),
            *("--llama", f"http://{server.address}"),
        ]
        assert stack.picker is not None
        for port in (stack.envoy_admin_port, stack.envoy_port, stack.grpc_port, stack.http_port):
            address = f"127.0.0.1:{port}"
            agent = await stack.children.start(f"to-{port}", [*command, "--advertise", address])

            async def is_rejected(address: str = address) -> bool:
                assert stack.picker is not None
                return f"{address} has a port of Envoy" in stack.picker.log_tail(50)

            await agent.wait_ready(is_rejected, timeout_s=READY_S)
            await agent.stop()
        assert (await stack.status())["endpoints"] == {}

        await stack.children.start("honest", [*command, "--advertise", server.address])
        await stack.until(
            lambda status: (
                {address: each["health"] for address, each in status["endpoints"].items()}
                == {server.address: "ready"}
            )
        )
