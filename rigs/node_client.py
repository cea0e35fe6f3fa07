"""Node's own clients, of HTTP/2 and HTTP/1.1, in one process, whose requests may be left in their
ways."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rigs.leaving import Way

SCRIPT: Final = Path(__file__).with_suffix(".mjs")
LINE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What the client saw of one request. `ended_at` is in monotonic seconds of this machine."""

    ended_at: float
    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool
    has_left: bool
    error: str


class NodeClient:
    """The process; `node_client` starts it. Belongs to one event loop."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._open: dict[str, asyncio.Future[Ended]] = {}

    async def ask(
        self,
        id_: str,
        port: int,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        way: Way,
        leaves_after_s: float,
    ) -> Ended:
        """Send a request, and leave it in this way of Node's unless it ends before. Raises
        `ConnectionResetError` if the process has ended."""
        if self._process.returncode is not None:
            raise ConnectionResetError("the client's process has ended")
        assert self._process.stdin is not None
        future = self._open[id_] = asyncio.get_running_loop().create_future()
        line = {
            "id": id_,
            "port": port,
            "path": path,
            "headers": dict(headers),
            "body": body.decode(),
            "way": way.value,
            "leaves_after_s": leaves_after_s,
        }
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        ended: Ended = await future
        return ended

    async def read(self) -> None:
        """Give each request its end, until the process ends."""
        assert self._process.stdout is not None
        async for text in self._process.stdout:
            line = json.loads(text)
            future = self._open.pop(line.pop("id"))
            if not future.done():
                future.set_result(Ended(**{**line, "body": base64.b64decode(line["body"])}))
        for future in self._open.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the client's process has ended"))


@asynccontextmanager
async def node_client(say: Callable[[str], None]) -> AsyncIterator[NodeClient | None]:
    """One whose process ends with the block, and with this process; None, and a word about it,
    where no Node is installed."""
    node = shutil.which("node")
    if node is None:
        say("there is no Node on this machine: its own clients are not among those that leave")
        yield None
        return
    process = await asyncio.create_subprocess_exec(
        *(node, SCRIPT),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
    )
    client = NodeClient(process)
    reading = asyncio.create_task(client.read())
    try:
        yield client
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading
