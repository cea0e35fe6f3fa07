"""Claims about extproc/telemetry/statsd.py, over a real UDP socket."""

from __future__ import annotations

import asyncio
import socket

import pytest

from extproc.settings.logging_section import StatsdSettings
from extproc.telemetry.statsd import Statsd, datagram

GAUGES = {"slots_idle": 3, "slots_processing": 5, "requests_buffered": 2}


class Inbox(asyncio.DatagramProtocol):
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.datagrams: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.datagrams.put_nowait(data)


@pytest.mark.parametrize(
    ("prefix", "head"),
    [("coxswain", "coxswain."), ("paddler_", "paddler_."), ("a.b.", "a.b."), ("", "")],
)
def test_one_line_a_gauge(prefix: str, head: str) -> None:
    """The names are Paddler's; prefix and name are joined by one dot, as its client does it."""
    lines = datagram(prefix, GAUGES).decode().split("\n")
    wanted = ["slots_idle:3|g", "slots_processing:5|g", "requests_buffered:2|g"]
    assert lines == [head + line for line in wanted]


async def test_reports_arrive_each_interval() -> None:
    """The first comes at once, and each later one tells the numbers of its own moment."""
    transport, inbox = await asyncio.get_running_loop().create_datagram_endpoint(
        Inbox, local_addr=("127.0.0.1", 0)
    )
    port = transport.get_extra_info("sockname")[1]
    numbers = iter(range(1000))
    statsd = Statsd(
        StatsdSettings(addr=f"127.0.0.1:{port}", prefix="p", interval_s=0.01),
        lambda: {"slots_idle": next(numbers), "slots_processing": 0, "requests_buffered": 0},
    )
    statsd.start()
    async with asyncio.timeout(20):
        first, second = await inbox.datagrams.get(), await inbox.datagrams.get()
    await statsd.aclose()
    transport.close()
    assert first.startswith(b"p.slots_idle:0|g") and second.startswith(b"p.slots_idle:1|g")


async def test_nobody_listening_is_no_trouble(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown name is said once, whatever the number of intervals; nothing raises."""
    asked = asyncio.Semaphore(0)

    async def unknown(*_: object, **__: object) -> None:
        asked.release()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    options = StatsdSettings(addr="nowhere.invalid:8125", interval_s=0.001)
    statsd = Statsd(options, lambda: GAUGES)
    statsd.start()
    async with asyncio.timeout(20):
        for _ in range(3):
            await asked.acquire()
    await statsd.aclose()
    assert len(caplog.records) == 1 and "nowhere.invalid" in caplog.text
