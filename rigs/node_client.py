"""Node's own HTTP/2 client as a process, whose requests may be left in its ways."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SCRIPT: Final = Path(__file__).with_suffix(".mjs")
WAYS: Final = ("close", "destroy", "session-close", "session-destroy")
LINE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What the client saw of one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool
    has_left: bool
    error: str


def has_node() -> bool:
    """Whether there is a Node on this machine."""
    return shutil.which("node") is not None


class NodeClient:
    """Sends to one port. Belongs to one event loop."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._open: dict[str, asyncio.Future[Ended]] = {}

    async def start(self) -> None:
        """Start the process; raises `FileNotFoundError` without Node."""
        self._process = await asyncio.create_subprocess_exec(
            *("node", SCRIPT, str(self._port)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
        )
        self._reading = asyncio.create_task(self._read())

    async def ask(
        self,
        id_: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        way: str,
        leaves_after_s: float,
    ) -> Ended:
        """Send a request, and leave it in this way unless it ends before."""
        assert self._process is not None and self._process.stdin is not None
        future = self._open[id_] = asyncio.get_running_loop().create_future()
        line = {
            "id": id_,
            "path": path,
            "headers": dict(headers),
            "body": body.decode(),
            "way": way,
            "leaves_after_s": leaves_after_s,
        }
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        ended: Ended = await future
        return ended

    async def aclose(self) -> None:
        """End the process."""
        process, reading = self._process, self._reading
        if process is None or reading is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        async for text in self._process.stdout:
            line = json.loads(text)
            self._open.pop(line["id"]).set_result(
                Ended(
                    status=line["status"],
                    headers=line["headers"],
                    body=base64.b64decode(line["body"]),
                    is_whole=line["is_whole"],
                    has_left=line["has_left"],
                    error=line["error"],
                )
            )
        for future in self._open.values():
            future.set_exception(ConnectionResetError("the client's process has ended"))
