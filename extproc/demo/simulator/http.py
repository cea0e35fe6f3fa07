"""A small HTTP/1.1 server over asyncio and h11 that notices at once when its client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

import h11

from extproc.demo.simulator.listener import Listener

MAX_BODY_BYTES = 64 * 1024 * 1024
READ_BYTES = 65_536
MAX_CONNECTIONS = 20_000
"""More are closed at once: llama-server would run out of threads long before."""

SERVER_NAME = "coxswain-simulator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One whole request. Header names are in lower case; of a repeated one the last counts."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole body, or `chunks` of one that are sent as they come, the headers with the first."""

    status: int = 200
    body: bytes = b""
    chunks: AsyncGenerator[bytes, None] | None = None
    content_type: str = "application/json; charset=utf-8"
    headers: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, value: object, status: int = 200) -> Answer:
        """The value as JSON."""
        return cls(status=status, body=json.dumps(value, separators=(",", ":")).encode())


Handler = Callable[[Request], Awaitable[Answer]]


class HttpServer:
    """Serves one handler. A handler whose client leaves is cancelled, also between chunks."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listener = Listener(self._serve)

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port; raises `OSError` when it is taken."""
        return (await self._listener.start(port, host=host)).port

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        await self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._listener.connections <= MAX_CONNECTIONS:
            await _Connection(reader, writer, self._handler).serve()


class _Connection:
    """One connection: requests one after the other, until either side has had enough."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._protocol = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        while True:
            try:
                request = await self._read_request()
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint, str(error))
                return
            if request is None:
                return
            if not await self._answer_while_present(request):
                return
            if self._protocol.our_state is not h11.DONE:
                return
            if self._protocol.their_state is not h11.DONE:
                return
            self._protocol.start_next_cycle()

    async def _read_request(self) -> Request | None:
        """Read one request; None when the client closed instead of sending one."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                if self._protocol.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                self._protocol.receive_data(await self._reader.read(READ_BYTES))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY_BYTES:
                    raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return _request(head, bytes(body))
            else:  # the connection was closed
                return None

    async def _answer_while_present(self, request: Request) -> bool:
        """Answer unless the client leaves first; False when it did."""
        answering = asyncio.ensure_future(self._answer(request))
        watching = asyncio.ensure_future(self._client_left())
        try:
            await asyncio.wait([answering, watching], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, watching):
                if not task.done():
                    task.cancel()
            await asyncio.wait([answering, watching])
        if answering.cancelled():
            return False
        answering.result()
        return watching.cancelled()

    async def _client_left(self) -> None:
        """Return when the client closes; what it sends early is kept for its next request."""
        early = 0
        with suppress(ConnectionError):  # an Envoy whose client left resets the connection
            while data := await self._reader.read(READ_BYTES):
                self._protocol.receive_data(data)
                early += len(data)
                if early > READ_BYTES:  # enough is kept; now its leaving shows by writing
                    await asyncio.get_running_loop().create_future()

    async def _answer(self, request: Request) -> None:
        answer = await self._handler(request)
        if answer.chunks is None:
            await self._send(_head(answer, length=len(answer.body)))
            body = [h11.Data(data=answer.body)] if request.method != "HEAD" else []
            await self._send(*body, h11.EndOfMessage())
            return
        head: h11.Response | None = _head(answer, length=None)
        async with aclosing(answer.chunks) as chunks:
            async for chunk in chunks:
                if head is not None:
                    await self._send(head)
                    head = None
                await self._send(h11.Data(data=chunk))
        await self._send(*([head] if head is not None else []), h11.EndOfMessage())

    async def _refuse(self, status: int, message: str) -> None:
        if self._protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            error = {"code": status, "message": message, "type": "invalid_request_error"}
            answer = Answer.of({"error": error}, status)
            closing = Answer(
                status=status, body=answer.body, headers=[*answer.headers, ("connection", "close")]
            )
            await self._send(_head(closing, length=len(closing.body)))
            await self._send(h11.Data(data=closing.body), h11.EndOfMessage())

    async def _send(self, *events: h11.Event) -> None:
        for event in events:
            data = self._protocol.send(event)
            if data:
                self._writer.write(data)
        await self._writer.drain()


def _request(head: h11.Request, body: bytes) -> Request:
    try:
        target = urlsplit(head.target.decode("ascii"))
    except ValueError:
        raise h11.RemoteProtocolError("the target is no URL") from None
    return Request(
        method=head.method.decode("ascii"),
        path=target.path,
        query=dict(parse_qsl(target.query)),
        headers={name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
        body=body,
    )


def _head(answer: Answer, *, length: int | None) -> h11.Response:
    framing = ("transfer-encoding", "chunked")
    if length is not None:
        framing = ("content-length", str(length))
    headers: list[tuple[str, str]] = [
        ("server", SERVER_NAME),
        ("content-type", answer.content_type),
        *answer.headers,
        framing,
    ]
    return h11.Response(
        status_code=answer.status,
        headers=headers,
        reason=HTTPStatus(answer.status).phrase.encode(),
    )
