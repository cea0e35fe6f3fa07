"""Clients over plain sockets, and Node's own: each sends a request and records what came of it."""

import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence

import h11
from h2.exceptions import ProtocolError

from rigs.chaos.records import Call
from rigs.chaos.wishes import SLOW_PIECES, Wish
from rigs.leaving import NODE_WAYS, WAYS, Http2Call, Way, leave
from rigs.node_client import NodeClient

PATH = "/v1/chat/completions"
NO_ANSWER_S = 60.0
"""A client that waited so long past what it allowed has got no answer, and never will."""
NO_ANSWER = "no answer"
READ_BYTES = 65_536
KEPT_BYTES = 4 * 1024 * 1024


class Clients:
    """Sends wishes to these ports in turn; `calls` are the records of those that ended, `ways`
    are those in which they can leave."""

    def __init__(
        self,
        ports: Sequence[int],
        key: str = "",
        no_answer_s: float = NO_ANSWER_S,
        node: NodeClient | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self.ways = WAYS if node is None else WAYS + NODE_WAYS
        self._node = node
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
        leaves_after_s = wish.leaves_after_s
        call = Call(
            id=wish.id,
            kind=wish.kind if leaves_after_s is None else f"{wish.kind} ({wish.way.value})",
            sent_at=time.monotonic(),
            weight=wish.choices,
            patience_s=wish.patience_ms / 1000,
        )
        body = bytearray()
        limit_s = call.patience_s + self._no_answer_s
        if leaves_after_s is not None and not wish.way.is_of_node:
            limit_s = min(limit_s, leaves_after_s)
        try:
            async with asyncio.timeout(limit_s):
                if leaves_after_s is not None and wish.way.is_of_node:
                    await self._exchange_node(wish, leaves_after_s, call, body)
                elif leaves_after_s is not None and wish.way.is_http2:
                    await self._exchange_http2(wish, call, body)
                else:
                    await self._exchange(wish, call, body)
        except TimeoutError:
            call.has_left = limit_s == leaves_after_s
            call.error = "" if call.has_left else NO_ANSWER
        except (OSError, h11.RemoteProtocolError, ProtocolError) as failure:
            call.error = repr(failure)
        call.ended_at = call.ended_at or time.monotonic()
        call.body_bytes = len(body)
        call.is_sound = is_sound(wish, bytes(body))
        if call.status >= 400 and not call.reason:
            call.reason = _error_code(bytes(body))
        self.calls.append(call)

    async def _exchange(self, wish: Wish, call: Call, body: bytearray) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", next(self._ports))
        try:
            protocol = h11.Connection(h11.CLIENT)
            writer.write(protocol.send(self._head(wish)) or b"")
            sending = asyncio.ensure_future(_send_body(protocol, writer, wish))
            try:
                await _read_answer(protocol, reader, call, body)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            leaves = wish.leaves_after_s is not None and not call.is_whole
            await leave(reader, writer, wish.way if leaves else Way.FIN)

    async def _exchange_http2(self, wish: Wish, call: Call, body: bytearray) -> None:
        """Of a client that leaves in a way of HTTP/2."""
        stream = await Http2Call.open("127.0.0.1", next(self._ports))
        try:
            stream.send(PATH, self._headers(wish), wish.body)
            await stream.read_on()
        finally:
            call.status, call.is_whole = stream.status, stream.is_whole
            _read_headers(call, stream.headers)
            body += stream.body
            await stream.leave(Way.H2_FIN if stream.is_whole else wish.way)

    async def _exchange_node(
        self, wish: Wish, leaves_after_s: float, call: Call, body: bytearray
    ) -> None:
        """Of a client that leaves as Node does."""
        assert self._node is not None
        headers, port = dict(self._headers(wish)), next(self._ports)
        ended = await self._node.ask(
            wish.id, port, PATH, headers, wish.body, wish.way, leaves_after_s
        )
        call.ended_at = ended.ended_at
        call.status, call.is_whole = ended.status, ended.is_whole
        call.has_left, call.error = ended.has_left, ended.error
        _read_headers(call, ended.headers)
        body += ended.body

    def _head(self, wish: Wish) -> h11.Request:
        headers = [("host", "chaos"), *self._headers(wish)]
        return h11.Request(method="POST", target=PATH, headers=headers)

    def _headers(self, wish: Wish) -> list[tuple[str, str]]:
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(wish.body))),
            ("x-request-id", wish.id),
            ("x-coxswain-queue-timeout-ms", str(wish.patience_ms)),
        ]
        if self._key:
            headers.append(("authorization", f"Bearer {self._key}"))
        return headers


async def _send_body(protocol: h11.Connection, writer: asyncio.StreamWriter, wish: Wish) -> None:
    body, pieces = wish.body, SLOW_PIECES if wish.upload_pause_s else 1
    size = -(-len(body) // pieces)
    for start in range(0, len(body), size):
        writer.write(protocol.send(h11.Data(data=body[start : start + size])) or b"")
        await writer.drain()
        if wish.upload_pause_s:
            await asyncio.sleep(wish.upload_pause_s)
    writer.write(protocol.send(h11.EndOfMessage()) or b"")


async def _read_answer(
    protocol: h11.Connection, reader: asyncio.StreamReader, call: Call, body: bytearray
) -> None:
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            protocol.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Response):
            call.status = event.status_code
            _read_headers(call, {k.decode(): v.decode("latin-1") for k, v in event.headers})
        elif isinstance(event, h11.Data):
            if len(body) < KEPT_BYTES:
                body += event.data
        elif isinstance(event, h11.EndOfMessage):
            call.is_whole = True
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError("closed before the answer")


def _read_headers(call: Call, headers: Mapping[str, str]) -> None:
    call.reason = headers.get("x-coxswain-reason", "")
    call.endpoint = headers.get("x-coxswain-endpoint", "")
    call.queue_ms = int(headers.get("x-coxswain-queue-ms", "0"))


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


def _error_code(body: bytes) -> str:
    """Envoy's own word for why it refused."""
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, LookupError, TypeError):
        return ""
