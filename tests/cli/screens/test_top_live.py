"""Claims about extproc/cli/screens/top_live.py: what the loop does with each kind of answer."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from extproc.cli.admin_client import ExitCode, PickerError
from extproc.cli.screens.top_data import TopData
from extproc.cli.screens.top_live import Top
from extproc.pb.coxswain.v1 import admin_pb2 as pb


def data(version: str) -> TopData:
    status = pb.GetStatusResponse(version=version, is_ready=True)
    return TopData(status=status, endpoints=(), running=(), queued=())


class Picker:
    """Gives these answers, one after the other."""

    def __init__(self, *answers: TopData | PickerError) -> None:
        self._answers = list(answers)

    async def scrape(self) -> TopData:
        answer = self._answers.pop(0)
        if isinstance(answer, PickerError):
            raise answer
        return answer


async def drawn(count: int, *answers: TopData | PickerError) -> str:
    """All that was written to the screen while `count` sights were seen."""
    screen = Console(file=StringIO(), force_terminal=True, width=80, height=24, color_system=None)
    picker = Picker(*answers)
    try:
        await Top(picker.scrape, "10.0.0.1:9003", screen, 0.001, data("first")).run(count)
    finally:
        assert isinstance(screen.file, StringIO)
        written = screen.file.getvalue()
        assert written.count("\x1b[?1049h") == written.count("\x1b[?1049l") == 1
    return written


async def test_each_status_is_drawn() -> None:
    """From the one that was seen before the screen was taken to the last one."""
    written = await drawn(3, data("second"), data("third"))
    for version in ("first", "second", "third"):
        assert f"coxswain {version} at 10.0.0.1:9003" in written


async def test_a_picker_that_restarts_is_waited_for() -> None:
    """The last picture stays and says that it is old, until there is an answer again."""
    gone = PickerError(ExitCode.UNREACHABLE, "no picker answers")
    written = await drawn(2, gone, gone, data("restarted"))
    assert "no answer from 10.0.0.1:9003 for" in written
    assert written.index("retrying") < written.index("coxswain restarted")
    assert "retrying" not in written[written.index("coxswain restarted") :]


async def test_a_token_that_is_rejected_ends_it() -> None:
    """To go on asking would not help; the screen is given back all the same."""
    with pytest.raises(PickerError) as caught:
        await drawn(2, PickerError(ExitCode.UNAUTHENTICATED, "the token is wrong"))
    assert caught.value.exit is ExitCode.UNAUTHENTICATED
