"""Where nobody reads what a command prints, it ends as if somebody did, or at the first line that
cannot be written, and never with a traceback."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.fakes.picker import running_picker

A = "10.0.0.1:8080"
CLOSED = '"$@" >&-'
GONE = '"$@" | true; exit ${PIPESTATUS[0]}'
"""Commands of a shell."""
BATCH = {
    "id": "batch_1",
    "status": "completed",
    "output_file_id": "file-1",
    "error_file_id": None,
}
RESULTS = b'{"custom_id": "1"}\n' * 100_000


@asynccontextmanager
async def batches() -> AsyncIterator[str]:
    """The URL of what has one batch, whose results fill more than a pipe."""

    async def batch(_: web.Request) -> web.Response:
        return web.json_response(BATCH)

    async def content(_: web.Request) -> web.Response:
        return web.Response(body=RESULTS)

    app = web.Application()
    app.router.add_get("/v1/batches/batch_1", batch)
    app.router.add_get("/v1/files/file-1/content", content)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site.name
    finally:
        await runner.cleanup()


async def ended(script: str, *arguments: str) -> tuple[int | None, str]:
    """The exit status of the command in such a line of a shell, and what it says."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("COXSWAIN")}
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", script, "bash", sys.executable, "-m", "extproc.cli", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def test_a_closed_output_changes_nothing_else() -> None:
    """Also not for what opens files or connections, of which one would have its descriptor."""
    async with running_picker() as picker, batches() as url:
        picker.add_ready(A)
        of_picker = ("--picker", f"127.0.0.1:{picker.port}")
        results = await asyncio.gather(
            ended(CLOSED, "--version"),
            ended(CLOSED, "config", "reference"),
            ended(CLOSED, "batch", "results", "batch_1", "--url", url),
            ended(CLOSED, "endpoints", *of_picker),
            ended(CLOSED, "status", "-o", "json", *of_picker),
            ended(CLOSED, "requests", "show", "none", *of_picker),
        )
    assert set(results[:-1]) == {(0, "")}
    code, text = results[-1]
    assert code == 4 and text.count("\n") == 1, "errors are said as ever"


async def test_a_reader_that_is_gone_ends_a_command() -> None:
    """Also one that would go on until Ctrl-C."""
    async with running_picker() as picker, batches() as url:
        picker.add_ready(A)
        of_picker = ("--picker", f"127.0.0.1:{picker.port}")
        results = await asyncio.gather(
            ended(GONE, "config", "reference"),
            ended(GONE, "batch", "results", "batch_1", "--url", url),
            ended(GONE, "endpoints", *of_picker),
            ended(GONE, "endpoints", "--watch", "-o", "json", *of_picker),
            ended(GONE, "queue", "-o", "json", *of_picker),
            ended(GONE, "top", "-o", "json", *of_picker),
        )
    assert set(results) == {(1, "")}


async def test_a_key_that_nobody_gets_is_not_added(tmp_path: Path) -> None:
    """Not for a closed output, a full disk or a reader that is gone; a key that somebody has
    already needs no output."""
    file = tmp_path / "keys"
    at = ("--file", str(file))
    ways = (CLOSED, '"$@" >/dev/full')
    for command in (("add", "web"), ("add", "web", "-o", "json")):
        for way in ways:
            code, said = await ended(way, "keys", *command, *at)
            assert code == 1 and said.count("\n") == 1 and "nothing was changed" in said
            assert os.listdir(tmp_path) == []
    own = tmp_path / "own"
    own.write_text("sk-0123456789-abcdefghij\n")
    given = f'"$@" --stdin < {own} >&-'
    assert (await ended(given, "keys", "add", "web", *at))[0] == 0
    kept = file.read_bytes()
    for way in ways:
        code, said = await ended(way, "keys", "rotate", "web", *at)
        assert code == 1 and "nothing was changed" in said
    assert file.read_bytes() == kept, "the key that is there does not end"
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extproc.cli", "keys", "add", "web", *at), stdout=writer
    )
    os.close(writer)
    assert await process.wait() == 1 and file.read_bytes() == kept
