"""From no server to one and back by the documented program, behind a real Envoy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from extproc.demo.port import free_ports
from tests.docs.pages import page
from tests.e2e.stack import CHAT, Stack, chat, until

pytestmark = pytest.mark.e2e

SYSTEMCTL = """#!/bin/sh
# Stands for systemd: units are a simulated server with an agent.
set -eu
cd {folder}
case $1 in
start)
  test -e agent.pid && exit 0
  setsid {python} -m extproc.demo.simulator --port {port} --alias qwen > server.log 2>&1 &
  echo $! > server.pid
  setsid {python} -m extproc.cli agent --picker 127.0.0.1:$(cat picker) --name "${{2#llama@}}" \
    --llama http://127.0.0.1:{port} --advertise 127.0.0.1:{port} > agent.log 2>&1 &
  echo $! > agent.pid ;;
stop)
  test -e agent.pid || exit 0
  kill $(cat agent.pid)
  while kill -0 $(cat agent.pid) 2> /dev/null; do sleep 0.1; done
  kill $(cat server.pid)
  rm agent.pid server.pid ;;
esac
echo "$@" >> calls
"""


async def test_a_request_starts_a_server_and_idleness_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    blocks = page("docs/scaling.md").blocks()
    (script,) = (block.text for block in blocks if "#!/bin/sh" in block.text)
    systemctl = SYSTEMCTL.format(folder=tmp_path, python=sys.executable, port=port)
    for name, text in (("llama-fleet", script), ("systemctl", systemctl)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    settings = {
        "endpoints": [],
        "scale": {
            "models": {"qwen": {}},
            "command": ["llama-fleet"],
            "idle_s": 1,
            "down_after_s": 1,
        },
    }
    calls = tmp_path / "calls"
    async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
        (tmp_path / "picker").write_text(str(stack.admin_port))
        (scale,) = (await stack.status())["scale"]
        assert (scale["model"], scale["wanted"]) == ("qwen", 0)
        answer = await stack.client.post(stack.url(CHAT), json={**chat(4), "model": "qwen"})
        assert answer.status_code == 200
        assert answer.headers["x-coxswain-endpoint"] == "qwen-1"
        asked = ["start llama@qwen-1", "stop llama@qwen-1"]

        async def is_stopped() -> bool:
            found = calls.read_text().splitlines()
            assert found == asked[: len(found)]
            return found == asked

        await until(is_stopped)
        assert not (tmp_path / "agent.pid").exists()
        await stack.until(lambda status: not status["endpoints"] and not status["problems"])
