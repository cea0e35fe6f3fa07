"""Envoy goes past a picker that lives: over real Envoy, with the picker in the test's process, so
that its event loop can be blocked."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path

import httpx
import pytest

from extproc.app.monitoring import bypasses, envoy_counters
from extproc.demo.port import free_port
from tests.e2e.one_process import running
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.log import logged
from tests.fakes.picker import until

pytestmark = [pytest.mark.e2e]

CHAT = "/v1/chat/completions"
MESSAGES = {"messages": [{"role": "user", "content": "row"}]}
TIMEOUT_S = 4.0


async def test_a_bypass_of_a_living_picker_is_counted_shown_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What Envoy answers or sends elsewhere by itself is none, nor is what the picker decided; and
    the servers are not blamed for the time that the picker lost."""
    monkeypatch.setattr(bypasses, "FOUND_AFTER_S", 0.0)
    monkeypatch.setattr(envoy_counters, "INTERVAL_S", 0.05)
    metrics = f"127.0.0.1:{free_port()}"
    envoy = {"message_timeout_s": TIMEOUT_S, "metrics": metrics, "stats": [metrics]}
    async with FakeLlamaServer() as server:
        values = {"endpoints": [{"address": str(server.address)}], "envoy": envoy}
        async with running(tmp_path, values) as stack:
            service, client = stack.service, stack.client
            timeouts = (metrics, "message_timeouts")
            await until(lambda: timeouts in service.core.envoy_counters.read())
            for method, path in (
                ("GET", "/health"),
                ("GET", "/v1/models"),
                ("GET", "/slots"),
                ("GET", "/nothing"),
                ("POST", CHAT),
            ):
                await client.request(method, path, json=MESSAGES if method == "POST" else None)
            server.replies[CHAT] = Reply(gate=asyncio.Event())
            with pytest.raises(httpx.ReadTimeout):  # its client leaves before the answer
                await client.post(CHAT, timeout=0.5)
            server.replies.pop(CHAT)
            before = service.core.bypasses.total

            answers: list[httpx.Response] = []
            asking = threading.Thread(
                target=lambda: answers.append(
                    httpx.post(f"{client.base_url}{CHAT}", json=MESSAGES, timeout=60)
                )
            )
            # A busy machine may have blocked the picker already, and that is not said again.
            earlier = [record.getMessage() for record in logged(caplog)]
            said_before = [line for line in earlier if line.startswith("the picker itself was")]
            caplog.clear()
            with caplog.at_level(logging.WARNING, "coxswain"):
                asking.start()
                time.sleep(1.5 * TIMEOUT_S)  # noqa: ASYNC251 - the picker answers nobody
                await asyncio.to_thread(asking.join)
                await until(lambda: service.core.bypasses.total > 0)
                await until(lambda: service.core.envoy_counters.read().get(timeouts, 0) > 0)
                await until(lambda: len(service.operators.problems()) == 3)
            assert before == 0 and service.core.bypasses.total == 1
            assert "x-coxswain-endpoint" not in answers[0].headers
            pages = f"http://127.0.0.1:{service.http_port}"
            status = (await client.get(f"{pages}/status")).json()
            assert status["bypassed"] == 1
            sent, waited, blocked = status["problems"]
            assert sent.startswith("Envoy sent 1 request ") and "CPU" in sent
            assert waited.startswith(f"Envoy at {metrics} waited 1 time ")
            assert blocked.startswith("the picker itself was blocked")
            page = (await client.get(f"{pages}/metrics")).text
            assert "coxswain_bypassed_requests_total 1\n" in page
            (endpoint,) = status["endpoints"]
            assert endpoint["issues"] == []
            said = sorted(said_before + [record.getMessage() for record in logged(caplog)])
            assert [line.split(" ")[0] for line in said] == ["Envoy", "Envoy", "the"]
            assert (await client.get(f"http://{metrics}/quitquitquit")).status_code == 404
            assert (await client.post(f"http://{metrics}/stats/prometheus")).status_code == 404
