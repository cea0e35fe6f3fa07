"""Claims about extproc/cli/screens/drain.py: what a drain says while it waits, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from extproc.cli.admin_client import AdminClient, ExitCode, PickerError
from extproc.cli.output import Format
from extproc.cli.screens.drain import follow_drain
from extproc.pb.coxswain.v1 import admin_pb2 as pb

State = pb.DrainResponse
DRAINING = pb.DrainResponse(state=State.STATE_DRAINING, running=2, running_at_start=3)


class Said:
    """A picker that says these of the drain, and then nothing more for ever or the end."""

    admin: Any = type("Admin", (), {"Drain": None})

    def __init__(self, *messages: pb.DrainResponse, is_endless: bool = False) -> None:
        self._messages = messages
        self._is_endless = is_endless
        self.asked = pb.DrainRequest()

    async def follow(self, _call: object, asked: pb.DrainRequest) -> AsyncIterator[Any]:
        self.asked = asked
        for message in self._messages:
            yield message
        if self._is_endless:
            await asyncio.Event().wait()


async def follow(picker: Said, output: Format = Format.TABLE) -> None:
    await follow_drain(cast("AdminClient", picker), "gpu-1", 2.5, output)


async def test_drained(capsys: pytest.CaptureFixture[str]) -> None:
    """One line tells what ended; the picker was told whom and how long."""
    picker = Said(DRAINING, pb.DrainResponse(state=State.STATE_DRAINED, running_at_start=3))
    await follow(picker)
    assert capsys.readouterr().out == "gpu-1 is drained: 3 requests ended\n"
    assert (picker.asked.address, picker.asked.deadline_s) == ("gpu-1", 2.5)


@pytest.mark.parametrize(
    ("state", "exit_", "text"),
    [
        (
            State.STATE_DEADLINE_PASSED,
            ExitCode.NOT_YET,
            "1 request still running on gpu-1 after 2.5 s",
        ),
        (State.STATE_CALLED_OFF, ExitCode.REJECTED, "gpu-1 was activated or disabled"),
    ],
)
@pytest.mark.parametrize("output", list(Format))
async def test_not_drained(state: Any, exit_: ExitCode, text: str, output: Format) -> None:
    """Each other end has its own exit code and words, in JSON too."""
    with pytest.raises(PickerError, match=text) as caught:
        await follow(Said(DRAINING, pb.DrainResponse(state=state, running=1)), output)
    assert caught.value.exit is exit_


async def test_json_has_a_line_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script reads while it waits."""
    await follow(Said(DRAINING, pb.DrainResponse(state=State.STATE_DRAINED)), Format.JSON)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["state"], line["running"]) for line in lines] == [("draining", 2), ("drained", 0)]


async def test_who_leaves_learns_that_it_stays_draining(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C ends the waiting, not the drain."""
    waiting = asyncio.create_task(follow(Said(DRAINING, is_endless=True)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert "gpu-1 stays draining; `coxswain endpoints activate gpu-1`" in capsys.readouterr().err
