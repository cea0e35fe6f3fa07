"""Clients over plain sockets: each sends one request and records what came of it."""

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import h11

from rigs.chaos.records import Call
from rigs.chaos.wishes import SLOW_PIECES, Wish

PATH = "/v1/chat/completions"
NO_ANSWER_S = 60.0
"""A client that waited so long past what it allowed has got no answer, and never will."""
NO_ANSWER = "no answer"
READ_BYTES = 65_536
KEPT_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class _Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    is_whole: bool = False


class Clients:
    """Sends wishes to these ports in turn; `calls` are the records of those that ended."""

    def __init__(
        self, ports: Sequence[int], key: str = "", no_answer_s: float = NO_ANSWER_S
    ) -> None:
        self.calls: list[Call] = []
        self._ports = itertools.cycle(ports)
        self._key = key
        self._no_answer_s = no_answer_s
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> int:
        """How many still wait for their answer's end."""
        return len(self._tasks)

    def send(self, wish: Wish) -> asyncio.Task[None]:
        """Send one; returns at once."""
        task = asyncio.create_task(self._call(wish))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def join(self) -> None:
        """Wait for all of them; each ends, at the latest when its patience is over by far."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _call(self, wish: Wish) -> None:
        sent_at = time.monotonic()
        answer = _Answer()
        error, has_left = "", False
        limit_s = wish.patience_ms / 1000 + self._no_answer_s
        if wish.leaves_after_s is not None:
            limit_s = min(limit_s, wish.leaves_after_s)
        try:
            async with asyncio.timeout(limit_s):
                await self._exchange(wish, answer)
        except TimeoutError:
            has_left = wish.leaves_after_s is not None
            error = "" if has_left else NO_ANSWER
        except (OSError, h11.RemoteProtocolError) as failure:
            error = repr(failure)
        self.calls.append(
            Call(
                id=wish.id,
                kind=wish.kind,
                sent_at=sent_at,
                ended_at=time.monotonic(),
                weight=wish.choices,
                patience_s=wish.patience_ms / 1000,
                status=answer.status,
                reason=_reason(answer),
                endpoint=answer.headers.get("x-coxswain-endpoint", ""),
                queue_ms=int(answer.headers.get("x-coxswain-queue-ms", "0")),
                body_bytes=len(answer.body),
                is_whole=answer.is_whole,
                is_sound=is_sound(wish, bytes(answer.body)),
                has_left=has_left,
                error=error,
            )
        )

    async def _exchange(self, wish: Wish, answer: _Answer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", next(self._ports))
        try:
            protocol = h11.Connection(h11.CLIENT)
            body = wish.body
            writer.write(protocol.send(self._head(wish, len(body))) or b"")
            sending = asyncio.ensure_future(_send_body(protocol, writer, body, wish))
            try:
                await _read_answer(protocol, reader, answer)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            writer.transport.abort()

    def _head(self, wish: Wish, length: int) -> h11.Request:
        headers = [
            ("host", "chaos"),
            ("content-type", "application/json"),
            ("content-length", str(length)),
            ("x-request-id", wish.id),
            ("x-coxswain-queue-timeout-ms", str(wish.patience_ms)),
        ]
        if self._key:
            headers.append(("authorization", f"Bearer {self._key}"))
        return h11.Request(method="POST", target=PATH, headers=headers)


async def _send_body(
    protocol: h11.Connection, writer: asyncio.StreamWriter, body: bytes, wish: Wish
) -> None:
    pieces = SLOW_PIECES if wish.upload_pause_s else 1
    size = -(-len(body) // pieces)
    for start in range(0, len(body), size):
        writer.write(protocol.send(h11.Data(data=body[start : start + size])) or b"")
        await writer.drain()
        if wish.upload_pause_s:
            await asyncio.sleep(wish.upload_pause_s)
    writer.write(protocol.send(h11.EndOfMessage()) or b"")


async def _read_answer(
    protocol: h11.Connection, reader: asyncio.StreamReader, answer: _Answer
) -> None:
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            protocol.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Response):
            answer.status = event.status_code
            answer.headers = {k.decode(): v.decode("latin-1") for k, v in event.headers}
        elif isinstance(event, h11.Data):
            if len(answer.body) < KEPT_BYTES:
                answer.body += event.data
        elif isinstance(event, h11.EndOfMessage):
            answer.is_whole = True
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError("closed before the answer")


def is_sound(wish: Wish, body: bytes) -> bool:
    """Whether a 200 answer is the answer to this request: complete, and as long as was asked."""
    try:
        if not wish.is_streamed:
            answer = json.loads(body)
            said = answer["usage"]["completion_tokens"]
            # The simulator counts what all choices say, llama-server what one does.
            lengths = (wish.tokens, wish.tokens * wish.choices)
            return len(answer["choices"]) == wish.choices and said in lengths
        events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        parts = [json.loads(event) for event in events[:-1]]
        said = parts[-1]["timings"]["predicted_n"]
        return events[-1] == b"[DONE]" and said == wish.tokens
    except (ValueError, LookupError, TypeError):
        return False


def _reason(answer: _Answer) -> str:
    """Why it was refused: the picker's or Envoy's own word for it."""
    reason = answer.headers.get("x-coxswain-reason", "")
    if reason or answer.status < 400:
        return reason
    try:
        return str(json.loads(bytes(answer.body))["error"]["code"])
    except (ValueError, LookupError, TypeError):
        return ""
