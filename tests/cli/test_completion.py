"""Claims about extproc/cli/completion.py, asked as a shell asks: by the variables of its script."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time

import pytest

from extproc.cli.completion import PATIENCE_S
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.picker import FakePicker, running_picker, until

A, B, C = "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"


async def completed(
    *words: str, port: int, patience_s: float = 60.0, **variables: str
) -> list[str]:
    """What bash would be offered for the last of these words, and nothing beside it. A busy
    machine is given more time than a person would be."""
    line = " ".join(("coxswain", *words))
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("COXSWAIN_")
    }
    environ |= {
        "_COXSWAIN_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
        "COXSWAIN_PICKER": f"127.0.0.1:{port}",
        **variables,
    }
    program = (
        f"from extproc.cli import completion; completion.PATIENCE_S = {patience_s}; "
        "from extproc.cli.root import root; root(prog_name='coxswain')"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert stderr == b""
    return stdout.decode().split()


async def filled(picker: FakePicker) -> None:
    """One endpoint of each kind: from the settings, added, disabled."""
    picker.add_ready(A, name="gpu-1")
    picker.add_ready(C)
    await picker.admin.AddEndpoint(pb.AddEndpointRequest(address=B, name="gpu-2"))
    await picker.admin.Disable(pb.DisableRequest(address=C))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("endpoints", "drain", "g"), ["gpu-1", "gpu-2"]),
        (("endpoints", "disable", ""), ["gpu-1", "gpu-2"]),
        (("endpoints", "activate", ""), [C]),
        (("endpoints", "remove", "gpu"), ["gpu-2"]),
        (("requests", "--endpoint", "10"), [C]),
        (("endpoints", "drain", "other"), []),
    ],
)
async def test_endpoints_that_suit_the_command(words: tuple[str, ...], offered: list[str]) -> None:
    async with running_picker() as picker:
        await filled(picker)
        assert await completed(*words, port=picker.port) == offered


async def test_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them can be cancelled, and those that wait be watched."""
    async with running_picker() as picker:
        picker.add_ready(A)
        calls = [await picker.ask("runs"), await picker.ask("waits")]
        await until(lambda: len(picker.dispatcher.queue) == 1)
        assert await completed("requests", "cancel", "", port=picker.port) == ["runs", "waits"]
        assert await completed("queue", "watch", "", port=picker.port) == ["waits"]
        for call in calls:
            call.cancel()


async def test_the_picker_is_the_one_that_the_queue_names() -> None:
    async with running_picker() as picker:
        await filled(picker)
        where = ("--picker", f"127.0.0.1:{picker.port}")
        assert await completed("endpoints", *where, "remove", "", port=1) == ["gpu-2"]
        assert await completed("endpoints", "remove", *where, "", port=1) == ["gpu-2"]


async def test_no_picker_no_word() -> None:
    """Nobody there, somebody who is silent, a token file that is not there: nothing is offered,
    and not late."""
    assert await completed("endpoints", "drain", "", port=1) == []
    offered = await completed("endpoints", "drain", "", port=1, COXSWAIN_TOKEN_FILE="/no/token")
    assert offered == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_at = time.monotonic()
        port = silent.getsockname()[1]
        assert await completed("queue", "watch", "", port=port, patience_s=PATIENCE_S) == []
        assert time.monotonic() - began_at < 30, "it does not wait for ever"
