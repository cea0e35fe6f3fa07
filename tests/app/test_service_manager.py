"""Claims about extproc/app/service_manager.py, with a socket in systemd's place."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from extproc.app.service_manager import ServiceManager
from extproc.demo.port import LOOPBACK

PATIENCE_S = 60.0
ANYWHERE = [f"--set=listen.{name}={LOOPBACK}:0" for name in ("grpc", "http", "admin")]


class Systemd:
    """The end of the socket that systemd reads."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    async def message(self) -> dict[str, str]:
        """The next one, by its keys."""
        async with asyncio.timeout(PATIENCE_S):
            data = await asyncio.get_running_loop().sock_recv(self.socket, 4096)
        return dict(line.split("=", 1) for line in data.decode().splitlines())


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    one = Systemd(str(tmp_path / "notify"))
    yield one
    one.socket.close()


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(tmp_path / "notify"), **more}


async def test_ready_alive_and_stopping(tmp_path: Path, systemd: Systemd) -> None:
    """The pings come until the end, also while it stops."""
    manager = ServiceManager(environment(tmp_path, WATCHDOG_USEC="30000"))
    manager.ready("serving")
    assert await systemd.message() == {"READY": "1", "STATUS": "serving"}
    for _ in range(3):
        assert await systemd.message() == {"WATCHDOG": "1"}
    manager.stopping()
    while (message := await systemd.message()) == {"WATCHDOG": "1"}:
        pass
    assert message == {"STOPPING": "1", "STATUS": "draining"}
    assert await systemd.message() == {"WATCHDOG": "1"}
    manager.close()


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"}])
async def test_no_pings_without_a_watchdog_of_ours(
    tmp_path: Path, systemd: Systemd, watchdog: dict[str, str]
) -> None:
    """A unit without WatchdogSec wants none; that of a parent process is its own."""
    manager = ServiceManager(environment(tmp_path, **watchdog))
    manager.ready("serving")
    assert "READY" in await systemd.message()
    await asyncio.sleep(0.05)
    manager.stopping()
    assert "STOPPING" in await systemd.message()
    manager.close()


async def test_an_abstract_socket() -> None:
    name = f"coxswain-test-{os.getpid()}"
    systemd = Systemd(f"\0{name}")
    ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready("serving")
    assert "READY" in await systemd.message()
    systemd.socket.close()


async def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    """Also when its socket is gone."""
    for one in ({}, {"WATCHDOG_USEC": "1"}, environment(tmp_path)):
        manager = ServiceManager(one)
        manager.ready("serving")
        manager.stopping()
        manager.close()


async def test_the_first_signal_asks_to_stop_and_a_second_one_ends_it() -> None:
    """The second one may be the other signal. A cancellation without a signal is none of ours."""
    manager, loop = ServiceManager({}), asyncio.get_running_loop()
    stopped = asyncio.Event()

    async def wait() -> None:
        await asyncio.Event().wait()

    for is_signalled in (True, False):
        task = asyncio.create_task(wait())
        try:
            with manager.stopping_on_signals(stopped.set, task):
                if is_signalled:
                    os.kill(os.getpid(), signal.SIGTERM)
                    await stopped.wait()
                    os.kill(os.getpid(), signal.SIGINT)
                else:
                    task.cancel()
                await task
        except asyncio.CancelledError:
            assert not is_signalled
        else:
            assert is_signalled
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        assert task.cancelled()


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--endpoint", f"{LOOPBACK}:1", *ANYWHERE],
        ["agent", "--picker", f"{LOOPBACK}:1", "--llama", f"http://{LOOPBACK}:1"],
    ],
    ids=["serve", "agent"],
)
@pytest.mark.e2e
async def test_the_commands_report_to_systemd(
    tmp_path: Path, systemd: Systemd, command: list[str]
) -> None:
    """The picker when it serves, the agent when it runs, both until they have ended."""
    watched = environment(tmp_path, WATCHDOG_USEC="300000")
    words = (sys.executable, "-P", "-m", "extproc.cli", *command)
    process = await asyncio.create_subprocess_exec(
        *words, env={**os.environ, **watched}, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert (await systemd.message())["READY"] == "1"
        assert await systemd.message() == {"WATCHDOG": "1"}
        assert await systemd.message() == {"WATCHDOG": "1"}
        process.send_signal(signal.SIGTERM)
        while (message := await systemd.message()) == {"WATCHDOG": "1"}:
            pass
        assert message["STOPPING"] == "1"
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
