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
        ports = (stack.envoy_admin_port, stack.envoy_port, stack.grpc_port, stack.http_port)
        agents = [
            await stack.children.start(f"to-{port}", [*command, "--advertise", f"127.0.0.1:{port}"])
            for port in ports
        ]
        for port, agent in zip(ports, agents, strict=True):

            async def is_rejected(port: int = port) -> bool:
                assert stack.picker is not None
                return f"127.0.0.1:{port} has a port of Envoy" in stack.picker.log.read_text()

            await agent.wait_ready(is_rejected, timeout_s=READY_S)
        assert (await stack.status())["endpoints"] == {}
        for agent in agents:
            await stack.kill(agent)

        await stack.children.start("honest", [*command, "--advertise", server.address])
        await stack.until(
            lambda status: (
                {address: each["health"] for address, each in status["endpoints"].items()}
                == {server.address: "ready"}
            )
        )
