"""Claims about extproc/cli/admin_client.py: how commands that talk to a picker end."""

from __future__ import annotations

import asyncio

from tests.cli.typed_command import Run


async def test_nobody_there(run: Run) -> None:
    """One line that says what to do, and 3; never a traceback."""
    result = await run("endpoints", "--picker", "127.0.0.1:1")
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1 and "coxswain serve" in result.stderr


async def test_something_else_there(run: Run) -> None:
    """A port that speaks no gRPC is unreachable, too."""

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(shout, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        result = await run("queue", "--picker", f"127.0.0.1:{port}", "--timeout", "5")
    assert result.exit_code == 3 and result.stderr.startswith("coxswain: ")


async def test_half_a_certificate(run: Run) -> None:
    """A certificate without its key is a wrong command line."""
    result = await run("endpoints", "--cert", "x.pem")
    assert result.exit_code == 2 and "together" in result.stderr


async def test_exit_codes_are_documented(run: Run) -> None:
    """Every command that talks to a picker says in its help how it ends."""
    for command in (
        ["top"],
        ["endpoints"],
        ["endpoints", "drain"],
        ["queue", "watch"],
        ["explain"],
    ):
        assert "Exit codes: 0 done" in (await run(*command, "--help")).stdout
