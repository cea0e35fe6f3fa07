"""Clients over plain sockets, and Node's own: each sends a request and records what came of it."""

import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence

import h11
from h2.exceptions import ProtocolError

from rigs.chaos.planned_request import SLOW_PIECES, PlannedRequest
from rigs.chaos.records import Call
from rigs.leaving import NODE_WAYS, WAYS, Http2Call, Way, leave
from rigs.node_client import NodeClient

PATH = "/v1/chat/completions"
NO_ANSWER_S = 60.0
"""A client that waited so long past what it allowed has got no answer, and never will."""
NO_ANSWER = "no answer"
READ_BYTES = 65_536
KEPT_BYTES = 4 * 1024 * 1024


class Clients:
    """Sends planned requests to these ports in turn; `calls` are the records of those that ended,
    `ways` are those in which they can leave."""

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

    def send(self, planned: PlannedRequest) -> asyncio.Task[None]:
        """Send one; returns at once."""
        task = asyncio.create_task(self._call(planned))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def join(self) -> None:
        """Wait for all of them; each ends, at the latest when its patience is over by far."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _call(self, planned: PlannedRequest) -> None:
        leaves_after_s = planned.leaves_after_s
        call = Call(
            id=planned.id,
            kind=planned.kind
            if leaves_after_s is None
            else f"{planned.kind} ({planned.way.value})",
            sent_at=time.monotonic(),
            weight=planned.choices,
            patience_s=planned.patience_ms / 1000,
        )
        body = bytearray()
        limit_s = call.patience_s + self._no_answer_s
        if leaves_after_s is not None and not planned.way.is_of_node:
            limit_s = min(limit_s, leaves_after_s)
        try:
            async with asyncio.timeout(limit_s):
                if leaves_after_s is not None and planned.way.is_of_node:
                    await self._exchange_node(planned, leaves_after_s, call, body)
                elif leaves_after_s is not None and planned.way.is_http2:
                    await self._exchange_http2(planned, call, body)
                else:
                    await self._exchange(planned, call, body)
        except TimeoutError:
            call.has_left = limit_s == leaves_after_s
            call.error = "" if call.has_left else NO_ANSWER
        except (OSError, h11.RemoteProtocolError, ProtocolError) as failure:
            call.error = repr(failure)
        call.ended_at = call.ended_at or time.monotonic()
        call.body_bytes = len(body)
        call.is_sound = is_sound(planned, bytes(body))
        if call.status >= 400 and not call.reason:
            call.reason = _error_code(bytes(body))
        self.calls.append(call)

    async def _exchange(self, planned: PlannedRequest, call: Call, body: bytearray) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", next(self._ports))
        try:
            protocol = h11.Connection(h11.CLIENT)
            writer.write(protocol.send(self._head(planned)) or b"")
            sending = asyncio.ensure_future(_send_body(protocol, writer, planned))
            try:
                await _read_answer(protocol, reader, call, body)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            leaves = planned.leaves_after_s is not None and not call.is_whole
            await leave(reader, writer, planned.way if leaves else Way.FIN)

    async def _exchange_http2(self, planned: PlannedRequest, call: Call, body: bytearray) -> None:
        """Of a client that leaves in a way of HTTP/2."""
        stream = await Http2Call.open("127.0.0.1", next(self._ports))
        try:
            stream.send(PATH, self._headers(planned), planned.body)
            await stream.read_on()
        finally:
            call.status, call.is_whole = stream.status, stream.is_whole
            _read_headers(call, stream.headers)
            body += stream.body
            await stream.leave(Way.H2_FIN if stream.is_whole else planned.way)

    async def _exchange_node(
        self, planned: PlannedRequest, leaves_after_s: float, call: Call, body: bytearray
    ) -> None:
        """Of a client that leaves as Node does."""
        assert self._node is not None
        headers, port = dict(self._headers(planned)), next(self._ports)
        ended = await self._node.ask(
            planned.id, port, PATH, headers, planned.body, planned.way, leaves_after_s
        )
        call.ended_at = ended.ended_at
        call.status, call.is_whole = ended.status, ended.is_whole
        call.has_left, call.error = ended.has_left, ended.error
        _read_headers(call, ended.headers)
        body += ended.body

    def _head(self, planned: PlannedRequest) -> h11.Request:
        headers = [("host", "chaos"), *self._headers(planned)]
        return h11.Request(method="POST", target=PATH, headers=headers)

    def _headers(self, planned: PlannedRequest) -> list[tuple[str, str]]:
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(planned.body))),
            ("x-request-id", planned.id),
            ("x-coxswain-queue-timeout-ms", str(planned.patience_ms)),
        ]
        if self._key:
            headers.append(("authorization", f"Bearer {self._key}"))
        return headers


async def _send_body(
    protocol: h11.Connection, writer: asyncio.StreamWriter, planned: PlannedRequest
) -> None:
    body, pieces = planned.body, SLOW_PIECES if planned.upload_pause_s else 1
    size = -(-len(body) // pieces)
    for start in range(0, len(body), size):
        writer.write(protocol.send(h11.Data(data=body[start : start + size])) or b"")
        await writer.drain()
        if planned.upload_pause_s:
            await asyncio.sleep(planned.upload_pause_s)
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


def is_sound(planned: PlannedRequest, body: bytes) -> bool:
    """Whether a 200 answer is the answer to this request: complete, and as long as was asked."""
    try:
        if not planned.is_streamed:
            answer = json.loads(body)
            said = answer["usage"]["completion_tokens"]
            # The simulator counts what all choices say, llama-server what one does.
            lengths = (planned.tokens, planned.tokens * planned.choices)
            return len(answer["choices"]) == planned.choices and said in lengths
        events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        parts = [json.loads(event) for event in events[:-1]]
        said = parts[-1]["timings"]["predicted_n"]
        return events[-1] == b"[DONE]" and said == planned.tokens
    except (ValueError, LookupError, TypeError):
        return False


def _error_code(body: bytes) -> str:
    """Envoy's own word for why it refused."""
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, LookupError, TypeError):
        return ""
