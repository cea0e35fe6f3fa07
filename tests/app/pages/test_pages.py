"""Claims about extproc/app/pages/pages.py: what a started service tells over HTTP."""

from __future__ import annotations

import httpx

from extproc.app.service import Service
from extproc.settings import Settings
from tests.fakes.processes import some_processes


async def test_status_of_a_service_without_endpoints() -> None:
    """Who it is, since when, why it is not ready, and that nothing has happened yet."""
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    service = Service(Settings.model_validate({"listen": anywhere}))
    await service.start()
    try:
        url = f"http://127.0.0.1:{service.http_port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            status = (await client.get("/status")).json()
            assert (await client.get("/")).status_code == 200
    finally:
        await service.stop()
    assert status["not_ready"] == ["there are no endpoints"]
    assert status["problems"] == []
    assert status["version"] and status["uptime_s"] >= 0
    assert status["outcomes"] == {} and status["endpoints"] == {}
    assert status["slots"] == dict.fromkeys(
        ("total", "leased", "draining", "foreign", "idle", "unusable"), 0
    )
    assert "processes" not in status


async def test_status_and_metrics_with_processes() -> None:
    """What stands beside this process is shown, and counted only there."""
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    for processes in (some_processes, None):
        service = Service(Settings.model_validate({"listen": anywhere}), processes=processes)
        await service.start()
        try:
            url = f"http://127.0.0.1:{service.http_port}"
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                status = (await client.get("/status")).json()
                metrics = (await client.get("/metrics")).text.splitlines()
        finally:
            await service.stop()
        assert status.get("processes") == (processes and some_processes().as_json())
        assert ('coxswain_takeovers_total{reason="hung"} 1' in metrics) is bool(processes)
        assert any("coxswain_processes" in line for line in metrics) is bool(processes)
