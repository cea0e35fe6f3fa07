"""Claims about extproc/keeper/model_server.py: one model from wanted to unloaded."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from extproc.core.address import Address
from extproc.core.observation import Issue, ModelReading, Observation, ScrapeStatus
from extproc.core.placement import load_policy
from extproc.demo.port import free_ports
from extproc.keeper import model_server, server_report
from extproc.keeper.model_server import ModelServer, endpoint_name
from extproc.keeper.model_status import ModelState
from extproc.keeper.models_file import ModelEntry
from extproc.keeper.server_process import ServerProcess
from extproc.keeper.server_report import ServerReport
from extproc.keeper.slot_store import SlotStore
from extproc.runners.target import EndpointTarget
from extproc.runners.timeouts import Timeouts
from scraper.agent import Agent, AgentOptions
from scraper.agent.advertise import Advertise
from scraper.options import ScraperOptions
from tests.demo.test_process import is_alive
from tests.keeper.waits import until

SHORT_TIMEOUTS = Timeouts(read_s=1.0, slots_read_s=1.0)
TINY = Path(__file__).with_name("tiny_server.py")


class Kept:
    """One model without a picker, and everything that it has been."""

    def __init__(self, *more: str, slots: SlotStore | None = None, **entry: Any) -> None:
        cmd = [sys.executable, str(TINY), *more]
        self.entry = ModelEntry.model_validate({"cmd": cmd, "memory_mb": 1, **entry})
        self.states: list[ModelState] = []
        self.reported: list[Observation] = []
        self.address = Address.of("127.0.0.1", free_ports(1)[0])
        self.server = ModelServer(
            "qwen",
            self.entry,
            self.address,
            endpoint_name="gpu-1.qwen",
            make_agent=self._agent,
            changed=self._changed,
            slot_store=slots,
        )
        self._task: asyncio.Task[None] | None = None

    def _changed(self) -> None:
        state = self.server.status.state
        if not self.states or self.states[-1] is not state:
            self.states.append(state)

    def _agent(
        self, target: EndpointTarget, name: str, edit: Callable[[Observation], Observation]
    ) -> Agent:
        def noted(observation: Observation) -> Observation:
            self.reported.append(edit(observation))
            return self.reported[-1]

        options = AgentOptions(
            picker="127.0.0.1:1",
            advertise=Advertise.parse(str(target.address), 1),
            name=name,
            scraper=ScraperOptions(timeouts=SHORT_TIMEOUTS),
        )
        return Agent(target, options, lambda: grpc.aio.insecure_channel("127.0.0.1:1"), edit=noted)

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self.server.run())
        return self._task

    async def until_state(self, state: ModelState) -> None:
        await until(lambda: self.server.status.state is state, lambda: self.server.status)

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def keep() -> AsyncIterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(*more: str, **entry: Any) -> Kept:
        made.append(Kept(*more, **entry))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_policy, "FIRST_PAUSE_S", 0.01)


def server_pid(kept: Kept) -> int:
    """The server itself, the guard's child."""
    pid = kept.server.pid
    assert pid is not None
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


async def test_a_model_is_loaded_reported_and_unloaded(keep: Callable[..., Kept]) -> None:
    kept = keep("--load", "0.3", aliases=["chat"], env={"GREETING": "hello"})
    task = kept.start()
    await kept.until_state(ModelState.LOADED)
    assert kept.server.status.load_s is not None and kept.server.status.load_s >= 0.3
    await until(lambda: kept.reported)
    assert kept.reported[0].models == (ModelReading(name="qwen", aliases=("chat",)),)
    assert "listening hello" in kept.server.log.tail(10)
    kept.server.leave()
    await task
    assert kept.states == [
        *(ModelState.LOADING, ModelState.LOADED),
        *(ModelState.UNLOADING, ModelState.UNLOADED),
    ]
    assert kept.server.pid is None


@pytest.mark.parametrize("step", [(ServerReport, "end"), (ServerProcess, "stop")])
async def test_cancelled_while_it_unloads_leaves_no_server(
    keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    """Whatever it does just then: the keeper ends with its last model."""
    kept = keep("--hang")
    task = kept.start()
    await kept.until_state(ModelState.LOADED)
    pid = server_pid(kept)
    whole = getattr(*step)

    async def cancelled(*arguments: Any, **more: Any) -> None:
        asyncio.get_running_loop().call_soon(task.cancel)
        await whole(*arguments, **more)

    monkeypatch.setattr(*step, cancelled)
    kept.server.leave()
    await asyncio.gather(task, return_exceptions=True)
    assert not is_alive(pid)


async def test_an_unload_waits_for_busy_slots(keep: Callable[..., Kept], tmp_path: Path) -> None:
    """No picker says that its requests have ended, so the server's own word counts."""
    busy = tmp_path / "busy"
    busy.touch()
    kept = keep("--busy-file", str(busy))
    task = kept.start()
    await kept.until_state(ModelState.LOADED)
    kept.server.leave()
    await kept.until_state(ModelState.UNLOADING)
    await asyncio.sleep(0.5)
    assert not task.done() and kept.server.pid is not None
    busy.unlink()
    await task
    assert kept.server.status.state is ModelState.UNLOADED


async def test_a_server_that_ends_is_started_again(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.start()
    await kept.until_state(ModelState.LOADED)
    os.kill(server_pid(kept), signal.SIGKILL)
    await until(lambda: kept.server.status.exits == 1)
    await kept.until_state(ModelState.LOADED)
    assert ModelState.RESTARTING in kept.states
    assert kept.server.status.problem == "", "it serves again"
    assert any("was killed by SIGKILL" in line for line in kept.server.log.tail(100))


async def test_a_crash_loop_is_said_and_left_alone(keep: Callable[..., Kept]) -> None:
    """With the last lines of the log, until somebody asks again."""
    kept = keep("--no-such", "--exit-after", "0")
    task = kept.start()
    await task
    status = kept.server.status
    assert status.state is ModelState.FAILED and status.exits == load_policy.MAX_FAILURES
    assert status.problem == "ended with exit status 3; 5 failures in a row"
    assert kept.server.pid is None
    kept.server.forgive()
    assert kept.server.status.state is ModelState.UNLOADED


async def test_a_server_that_cannot_be_started_is_a_crash_loop_too(
    keep: Callable[..., Kept],
) -> None:
    kept = keep("x" * 140_000)  # longer than an argument may be
    await kept.start()
    status = kept.server.status
    assert status.state is ModelState.FAILED and status.exits == load_policy.MAX_FAILURES
    assert status.problem.startswith("it cannot be started: [Errno 7]")


async def test_a_missing_folder_for_slots_costs_only_the_cache(
    keep: Callable[..., Kept], tmp_path: Path
) -> None:
    kept = keep(slots=SlotStore(tmp_path / "missing", "gpu-1", 10))
    kept.start()
    await kept.until_state(ModelState.LOADED)
    assert any("slots are not saved" in line for line in kept.server.log.tail(100))
    kept.server.leave()
    await kept.until_state(ModelState.UNLOADED)


async def test_a_server_that_never_gets_ready_is_stopped(keep: Callable[..., Kept]) -> None:
    kept = keep("--load", "600", load_timeout_s=0.3)
    kept.start()
    await until(lambda: kept.server.status.problem)
    assert kept.server.status.problem == "it was not ready after 0.3 s"


async def test_a_load_may_be_called_off(keep: Callable[..., Kept]) -> None:
    kept = keep("--load", "600")
    task = kept.start()
    await until(lambda: kept.server.pid)
    kept.server.leave()
    await task
    assert kept.states == [ModelState.LOADING, ModelState.UNLOADED]


async def test_a_port_that_is_taken_is_said(keep: Callable[..., Kept]) -> None:
    kept = keep()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(kept.address)
        other.listen()
        kept.start()
        await until(lambda: kept.server.status.problem)
        assert "another process listens on" in kept.server.status.problem


async def test_a_missing_key_is_said(keep: Callable[..., Kept]) -> None:
    kept = keep(api_key_env="NO_SUCH_KEY_HERE")
    kept.start()
    await until(lambda: kept.server.status.problem)
    assert "NO_SUCH_KEY_HERE is empty or not set" in kept.server.status.problem


async def test_a_server_that_gives_no_answer_is_restarted(
    keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_report, "UNRESPONSIVE_S", 0.2)
    monkeypatch.setattr(model_server, "STOP_GRACE_S", 0.2)
    kept = keep()
    kept.start()
    await kept.until_state(ModelState.LOADED)
    await until(lambda: kept.reported)
    os.kill(server_pid(kept), signal.SIGSTOP)
    await until(
        lambda: "no usable answer" in kept.server.status.problem or kept.server.status.exits
    )
    await kept.until_state(ModelState.LOADED)


async def test_a_problem_is_an_issue_of_the_endpoint(
    keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its server is loaded again."""
    monkeypatch.setattr(load_policy, "FIRST_PAUSE_S", 60.0)
    kept = keep()
    kept.start()
    await kept.until_state(ModelState.LOADED)
    await until(lambda: kept.reported)
    os.kill(server_pid(kept), signal.SIGKILL)

    def found() -> list[Issue]:
        return [i for one in kept.reported for i in one.issues if i.code == "server-ended"]

    await until(found)
    assert "was killed by SIGKILL" in found()[0].message
    assert found()[0].remedy == "read its log with `coxswain logs gpu-1.qwen`"
    assert any(one.status is ScrapeStatus.UNREACHABLE for one in kept.reported)


def test_names_of_endpoints() -> None:
    assert endpoint_name("gpu-1", "qwen3:8b q4/x") == "gpu-1.qwen3-8b-q4-x"
    assert endpoint_name("gpu-1", "ü") == "gpu-1"
    assert len(endpoint_name("g", "x" * 1000)) == 253
