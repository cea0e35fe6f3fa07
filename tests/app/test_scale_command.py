"""Claims about extproc/app/scale_command.py, with real programs."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import grpc
import pytest

from extproc.app.program import MAX_LINES
from extproc.app.scale_command import ScaleCommand
from extproc.core.scaling.wanted import Cause, ModelTraffic
from extproc.core.views.scale_advisor import ModelScale
from tests.demo.test_process import is_alive
from tests.fakes.picker import until
from tests.long_run import IS_LONG_RUN


@dataclass
class Wanted:
    """The numbers that a core would say."""

    servers: dict[str, tuple[int, int]] = field(default_factory=lambda: {"qwen": (0, 0)})

    def read(self) -> dict[str, ModelScale]:
        return {
            model: ModelScale(
                model=model,
                wanted=wanted,
                cause=Cause.LOAD,
                traffic=ModelTraffic(servers=servers),
            )
            for model, (wanted, servers) in self.servers.items()
        }


def program(folder: Path, text: str) -> Path:
    """A shell script; `$LOG` is where it may write."""
    path = folder / "scale"
    path.write_text(f"#!/bin/sh\nLOG={folder / 'log'}\n{text}\n")
    path.chmod(0o755)
    return path


def written(folder: Path) -> list[str]:
    log_file = folder / "log"
    return log_file.read_text().splitlines() if log_file.exists() else []


@asynccontextmanager
async def following(
    command: list[str], wanted: Wanted, timeout_s: float = 60.0
) -> AsyncIterator[ScaleCommand]:
    scale = ScaleCommand(
        command,
        wanted.servers,
        wanted.read,
        time.monotonic,
        timeout_s,
        check_s=0.02,
        start_s=0.0,
    )
    scale.start()
    try:
        yield scale
    finally:
        await scale.aclose()


async def test_it_is_run_with_the_direction_the_model_and_the_number(tmp_path: Path) -> None:
    """Without a shell: its own arguments come first, whatever is in them."""
    command = program(tmp_path, 'echo "$@" >> $LOG')
    wanted = Wanted()
    async with following([str(command), "$(id); a b"], wanted) as scale:
        wanted.servers["qwen"] = (2, 0)
        await until(lambda: written(tmp_path) == ["$(id); a b up qwen 2"])
        wanted.servers["qwen"] = (0, 2)
        await until(lambda: written(tmp_path)[1:] == ["$(id); a b down qwen 0"])
        assert scale.problems() == ()


async def test_one_at_a_time_for_each_model(tmp_path: Path) -> None:
    """Another model's run goes on beside it."""
    command = program(
        tmp_path,
        'mkdir $LOG.$2 || echo twice >> $LOG; echo "$@" >> $LOG; sleep 0.3; rmdir $LOG.$2',
    )
    wanted = Wanted({"qwen": (1, 0), "coder": (1, 0)})
    async with following([str(command)], wanted):
        await until(lambda: sorted(written(tmp_path)) == ["up coder 1", "up qwen 1"])
        for number in range(2, 6):
            wanted.servers["qwen"] = (number, 0)
            await asyncio.sleep(0.05)
        await until(lambda: written(tmp_path)[-1] == "up qwen 5")
    assert "twice" not in written(tmp_path) and len(written(tmp_path)) <= 6


async def test_a_failure_is_reported_until_a_run_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With what it printed; it is tried again after a second."""
    command = program(
        tmp_path, 'echo "no quota \x1b[2J" >&2; test -e $LOG && exit 0; touch $LOG; exit 3'
    )
    wanted = Wanted({"qwen": (1, 0)})
    with caplog.at_level(logging.INFO, "coxswain.scale"):
        async with following([str(command)], wanted) as scale:
            await until(lambda: scale.problems() == ("scale.command up qwen 1: exit status 3",))
            await until(lambda: scale.problems() == ())
    assert "scale.command: no quota  [2J" in caplog.messages


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["/no/such/program"], "exit status 1"),
        (["sh", "-c", "kill -9 $$"], "it was killed by SIGKILL"),
    ],
)
async def test_other_ends_are_named(command: list[str], problem: str) -> None:
    async with following(command, Wanted({"qwen": (1, 0)})) as scale:
        await until(lambda: scale.problems() == (f"scale.command up qwen 1: {problem}",))


async def test_much_output_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And a line without an end."""
    command = program(
        tmp_path, "seq 100000; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end >> $LOG"
    )
    with caplog.at_level(logging.INFO, "coxswain.scale"):
        async with following([str(command)], Wanted({"qwen": (1, 0)})):
            await until(lambda: "scale.command up qwen 1 ended" in caplog.messages)
    lines = [line for line in caplog.messages if line.startswith("scale.command: ")]
    assert len(lines) == MAX_LINES + 1 and "lines were left out" in lines[0]
    assert max(map(len, lines)) < 400


STARTS = 400 if IS_LONG_RUN else 200
STUBBORN = """
trap '' TERM
sh -c 'trap "" TERM; echo $$ >> $0; while :; do sleep 0.1; done' $LOG &
echo $$ >> $LOG
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("timeout_s", [0.5, 60.0])
async def test_it_and_its_group_are_ended(
    tmp_path: Path, timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its time limit, and when the picker stops; also one that ignores SIGTERM."""
    monkeypatch.setattr("extproc.app.program.TERM_GRACE_S", 0.2)
    command = program(tmp_path, STUBBORN)
    async with following([str(command)], Wanted({"qwen": (1, 0)}), timeout_s) as scale:
        await until(lambda: len(written(tmp_path)) == 2)
        if timeout_s < 1:
            await until(lambda: bool(scale.problems()))
            assert scale.problems() == ("scale.command up qwen 1: it did not end within 0.5 s",)
    pids = [int(line) for line in written(tmp_path)]
    await until(lambda: not any(map(is_alive, pids)))


async def test_what_it_leaves_running_is_left_alone(tmp_path: Path) -> None:
    """Such as a server; its end is not waited for."""
    command = program(tmp_path, "setsid sleep 600 > /dev/null 2>&1 & echo $! >> $LOG; exit 0")
    wanted = Wanted({"qwen": (1, 0)})
    async with following([str(command)], wanted) as scale:
        await until(lambda: len(written(tmp_path)) == 1)
        await until(lambda: not scale._tasks)
        assert scale.problems() == ()
    (pid,) = map(int, written(tmp_path))
    assert is_alive(pid)
    os.kill(pid, 9)


@asynccontextmanager
async def grpc_in_use() -> AsyncIterator[None]:
    """Its two kinds side by side, idle between calls, as in a picker that serves operators and
    exports traces."""
    server = grpc.server(ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    is_over = Event()
    place, method = f"127.0.0.1:{port}", "/no.Service/Method"

    def call() -> None:
        with grpc.insecure_channel(place) as channel:
            ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            while not is_over.wait(0.05):
                with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                    ask(b"")

    async def call_here() -> None:
        async with grpc.aio.insecure_channel(place) as channel:
            ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            while not is_over.is_set():
                with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                    await ask(b"")
                await asyncio.sleep(0.05)

    try:
        async with asyncio.TaskGroup() as callers:
            callers.create_task(asyncio.to_thread(call))
            callers.create_task(call_here())
            yield
            is_over.set()
    finally:
        is_over.set()
        server.stop(None).wait()


async def test_grpc_in_the_same_process_kills_no_program() -> None:
    """On uvloop, which forks (docs/decisions/0180)."""
    ends: Counter[int] = Counter()
    async with grpc_in_use():
        for _ in range(STARTS):
            started = await asyncio.create_subprocess_exec("true", start_new_session=True)
            ends[await started.wait()] += 1
    assert ends == {0: STARTS}


async def test_nothing_is_collected_in_a_forked_process() -> None:
    """Before it is another program: it has none of the threads that finalizers may wait for."""
    program = """
import extproc, gc, os
child = os.fork()
if not child:
    os._exit(gc.isenabled())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "in the child"
assert gc.isenabled(), "in the parent"
"""
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await started.wait() == 0
