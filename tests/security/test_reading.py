"""Claims about extproc/security/reading.py: a file that blocks costs nobody else anything."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from extproc.security.reading import MAX_BLOCKED, BlockedReadError, Reads, at_once


def test_a_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    """With one it is read to its end, as a shell's `<(command)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(pipe, "rb", opener=at_once) as stream:
        assert stream.read() == b""
        writer = os.open(pipe, os.O_WRONLY)
        with os.fdopen(writer, "wb") as writing:
            writing.write(b"endpoints: []")
        assert stream.read() == b"endpoints: []"


async def test_a_read_returns_and_raises_what_it_did() -> None:
    reads = Reads()
    assert await reads(int, "7") == 7
    with pytest.raises(ValueError, match="seven"):
        await reads(int, "seven")

    def slow() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await reads(slow)


async def test_reads_that_block_are_given_up_and_are_few() -> None:
    """Those of another follower go on; and so do its own, once they end."""
    gate = threading.Event()
    reads, others = Reads(0.02), Reads()
    threads = threading.active_count()
    for _ in range(MAX_BLOCKED + 3):
        with pytest.raises(BlockedReadError, match="does not answer"):
            await reads(gate.wait)
    assert threading.active_count() <= threads + MAX_BLOCKED
    assert await others(int, "7") == 7
    gate.set()
    async with asyncio.timeout(60):
        while True:
            try:
                assert await reads(int, "7") == 7
                break
            except BlockedReadError:
                await asyncio.sleep(0)


async def test_who_is_cancelled_leaves_nothing() -> None:
    gate = threading.Event()
    reads = Reads()
    task = asyncio.create_task(reads(gate.wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert await reads(int, "7") == 7


async def test_what_was_read_while_the_loop_was_busy_is_the_result() -> None:
    """Its timeout passes in the same turn of the loop in which the result arrives."""
    is_read = threading.Event()

    def read() -> int:
        is_read.set()
        return 7

    def be_busy() -> None:
        is_read.wait()
        time.sleep(0.05)  # longer than the timeout

    reading = asyncio.create_task(Reads(timeout_s=0.02)(read))
    asyncio.get_running_loop().call_soon(be_busy)
    assert await reading == 7
