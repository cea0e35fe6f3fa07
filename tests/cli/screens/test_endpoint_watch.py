"""Claims about extproc/cli/screens/endpoint_watch.py: the fleet on a screen, while it changes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from io import StringIO

import pytest
from rich.console import Console

from extproc.cli.admin_client import AdminClient, Connection, ExitCode, PickerError
from extproc.cli.output import Format
from extproc.cli.screens import endpoint_watch
from extproc.cli.screens.endpoint_watch import watch_endpoints
from tests.fakes.picker import running_picker, until

A = "10.0.0.1:8080"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """What the watch draws on: a terminal of 120 columns."""
    shown = StringIO()
    drawn_on = Console(file=shown, force_terminal=True, width=120, height=20, color_system=None)
    monkeypatch.setattr(endpoint_watch, "console", lambda: drawn_on)
    monkeypatch.setattr(endpoint_watch, "REFRESH_S", 3600.0)
    return shown


async def test_a_change_is_drawn_without_being_waited_for(screen: StringIO) -> None:
    """News are on the screen long before ages are drawn again; left, it is whole."""
    async with (
        running_picker() as fake,
        AdminClient(Connection(address=f"127.0.0.1:{fake.port}")) as picker,
    ):
        fake.add_ready(A, slots=2, name="gpu-1")
        watching = asyncio.create_task(watch_endpoints(picker, Format.TABLE))
        await until(lambda: "gpu-1" in screen.getvalue())
        fake.observe(A, slots=77)
        await until(lambda: "77" in screen.getvalue())
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
    written = screen.getvalue()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor is back"


async def test_a_picker_that_goes_away_ends_it(screen: StringIO) -> None:
    """With the code for that, so that a script's loop can begin again."""
    async with AsyncExitStack() as stack:
        async with running_picker() as fake:
            fake.add_ready(A, name="gpu-1")
            connection = Connection(address=f"127.0.0.1:{fake.port}", timeout_s=5.0)
            picker = await stack.enter_async_context(AdminClient(connection))
            watching = asyncio.create_task(watch_endpoints(picker, Format.TABLE))
            await until(lambda: "gpu-1" in screen.getvalue())
        with pytest.raises(PickerError) as caught:
            await watching
    assert caught.value.exit is ExitCode.UNREACHABLE
