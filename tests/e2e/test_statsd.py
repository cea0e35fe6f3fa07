"""StatsD gauges from the picker's own process, over a real UDP socket."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from extproc.demo.port import LOOPBACK
from extproc.demo.process import Child

pytestmark = pytest.mark.e2e


async def test_serve_reports_to_the_address_of_its_flag(tmp_path: Path) -> None:
    """`--statsd-addr` is all that Paddler's users have to say."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inbox:
        inbox.bind((LOOPBACK, 0))
        inbox.setblocking(False)
        anywhere = [
            part
            for name in ("grpc", "admin", "http")
            for part in ("--set", f"listen.{name}={LOOPBACK}:0")
        ]
        address = f"{LOOPBACK}:{inbox.getsockname()[1]}"
        child = await Child.start(
            "picker",
            [
                *(sys.executable, "-m", "extproc.cli", "serve", *anywhere),
                *("--statsd-addr", address, "--set", "statsd.prefix=paddler_"),
            ],
            log=tmp_path / "picker.log",
        )
        try:
            async with asyncio.timeout(30):
                report = await asyncio.get_running_loop().sock_recv(inbox, 1024)
        finally:
            await child.stop()
    assert report.decode().split("\n") == [
        "paddler_.slots_idle:0|g",
        "paddler_.slots_processing:0|g",
        "paddler_.requests_buffered:0|g",
    ]
