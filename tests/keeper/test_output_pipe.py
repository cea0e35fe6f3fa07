"""Claims about extproc/keeper/output_pipe.py."""

from __future__ import annotations

import asyncio
import os
import sys

from extproc.keeper.output_pipe import OutputPipe
from tests.keeper.waits import until

FORKS = "import os, sys, time; os.fork() or time.sleep(60); print('parent', flush=True)"


class Heard:
    def __init__(self) -> None:
        self.data = b""
        self.ends = 0

    def feed(self, chunk: bytes) -> None:
        assert not self.ends
        self.data += chunk

    def end(self) -> None:
        self.ends += 1


async def test_what_is_printed_is_read_to_its_end_though_others_hold_the_pipe() -> None:
    """A child that lives on does not keep the end away."""
    heard = Heard()
    pipe = OutputPipe(heard.feed, heard.end)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORKS, stdout=pipe.sink, start_new_session=True
    )
    pipe.close_sink()
    assert await process.wait() == 0
    pipe.close()
    assert heard.data == b"parent\n" and heard.ends == 1
    pipe.close()
    assert heard.ends == 1
    os.killpg(process.pid, 9)


async def test_it_ends_by_itself_when_all_writers_have() -> None:
    heard = Heard()
    pipe = OutputPipe(heard.feed, heard.end)
    os.write(pipe.sink, b"x" * 1000)
    await until(lambda: heard.data)
    pipe.close_sink()
    pipe.close_sink()
    await until(lambda: heard.ends)
    assert heard.data == b"x" * 1000
