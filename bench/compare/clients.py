"""The clients: an open loop, in a process of its own.

`python -m bench.compare.clients` takes as JSON the file with the requests, the port, the moment of
the first request by the monotonic clock, how long after the last one clients wait, and the file for
what came of each. A request goes out at its moment, whatever became of those before it.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import uvloop

HOST = "127.0.0.1"
PATH = "/v1/chat/completions"
KEY_HEADER = "x-affinity-key"
"""What rivals hash: clients send the name of the conversation. Coxswain does not read it."""
KILLED_TEXT = b"Context size has been exceeded"


class End(StrEnum):
    """How a request ended for its client."""

    SERVED = "served"
    FAILED = "failed"  # no answer, or no 200
    CUT = "cut"  # an answer that began and was not completed
    KILLED = "killed"  # the shared context of its server was full


@dataclass(slots=True, kw_only=True)
class Record:
    """What came of one request. Times are seconds after it was due; `service_s` is what its server
    says that prefill and answer took in its slot."""

    kind: str
    end: str = End.FAILED
    why: str = ""
    late_s: float = 0.0
    first_token_s: float = 0.0
    took_s: float = 0.0
    service_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Clients:
    """Sends to one port over connections that are kept for as long as the other side keeps them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, due: float, body: str, key: str, kind: str) -> Record:
        """Send one request and read its answer."""
        record = Record(kind=kind, late_s=time.monotonic() - due)
        received = bytearray()
        try:
            await self._exchange(due, body.encode(), key, record, received)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as why:
            record.end = End.CUT if received else End.FAILED
            record.why = type(why).__name__
        except asyncio.CancelledError:
            record.end = End.CUT if received else End.FAILED
            record.why = "no end in time"
        record.took_s = time.monotonic() - due
        return record

    async def _exchange(
        self, due: float, body: bytes, key: str, record: Record, received: bytearray
    ) -> None:
        reader, writer = await self._connection()
        is_kept = False
        try:
            writer.write(_head(body, key) + body)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            status = int(head.split(b" ", 2)[1])
            async with aclosing(_parts(reader, head)) as parts:
                async for part in parts:
                    if not record.first_token_s and b"data: " in part:
                        record.first_token_s = time.monotonic() - due
                    received += part
            _read(status, bytes(received), record)
            is_kept = b"connection: close" not in head
        finally:
            if is_kept:
                self._idle.append((reader, writer))
            else:
                writer.close()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(HOST, self._port)


def _head(body: bytes, key: str) -> bytes:
    return (
        f"POST {PATH} HTTP/1.1\r\nhost: compare\r\ncontent-type: application/json\r\n"
        f"{KEY_HEADER}: {key}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()


async def _parts(reader: asyncio.StreamReader, head: bytes) -> AsyncGenerator[bytes, None]:
    """The body behind this head, in lower case, as it comes."""
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readline(), 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        return
    length = next((line for line in head.split(b"\r\n") if line.startswith(b"content-length")), b"")
    yield await reader.readexactly(int(length.partition(b":")[2] or 0))


def _read(status: int, body: bytes, record: Record) -> None:
    """Judge a whole answer. Raises `ValueError` for events that are no JSON."""
    if KILLED_TEXT in body:
        record.end = End.KILLED
        return
    if status != 200:
        record.why = str(status)
        return
    events = body.split(b"\n\n")
    timed = next((one for one in reversed(events) if b'"timings":' in one), None)
    if timed is None or b"[DONE]" not in body[-32:]:
        record.end, record.why = End.CUT, "no last event"
        return
    timings: dict[str, Any] = json.loads(timed.partition(b"data: ")[2])["timings"]
    record.end = End.SERVED
    record.service_s = (timings["prompt_ms"] + timings["predicted_ms"]) / 1000
    record.cached_tokens = timings["cache_n"]
    record.prompt_tokens = timings["cache_n"] + timings["prompt_n"]


async def send_all(
    requests: Sequence[tuple[float, str, str, str]], port: int, begins_at: float, patience_s: float
) -> list[Record]:
    """Send each request at its moment; returns what came of all of them."""
    clients = Clients(port)
    tasks = []
    for at_s, body, key, kind in requests:
        due = begins_at + at_s
        await asyncio.sleep(due - time.monotonic())
        tasks.append(asyncio.create_task(clients.ask(due, body, key, kind)))
    _, open_ones = await asyncio.wait(tasks, timeout=patience_s)
    for task in open_ones:
        task.cancel()
    return await asyncio.gather(*tasks)


def main(requests: str, results: str, **arguments: Any) -> None:
    """Read the requests from one file, and write what came of them into the other."""
    plan = json.loads(Path(requests).read_text())
    records = uvloop.run(send_all(plan, **arguments))
    Path(results).write_text(json.dumps([asdict(one) for one in records]))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
