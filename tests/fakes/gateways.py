"""What gateways that are no Envoy send to an endpoint picker, and what they make of its answer.

Replayed from their sources, as they were in 2026:
- NGINX Gateway Fabric: cmd/gateway/endpoint_picker.go (`sendRequest`, `buildHeaderRequest` and
  the loop of `createEndpointPickerHandler`) and internal/controller/nginx/modules/src/epp.js,
- agentgateway: crates/agentgateway/src/http/ext_proc.rs (`InferencePoolRouter`,
  `mutate_request`, `mutate_response`) and ext_proc/headers.rs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import httpx

from extproc.core.address import Address
from extproc.header_names import DESTINATION, SERVED
from extproc.pb import external_processor_pb2 as pb
from extproc.pb.processing_mode_pb2 import ProcessingMode
from extproc.stream.envoy.codec import PROCESS

JSON = {"content-type": "application/json"}


class RefusedError(Exception):
    """The picker answered in a server's place."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body.decode()}")
        self.status = status


def process(channel: grpc.aio.Channel) -> Any:
    """A new ext_proc stream."""
    method: Any = channel.stream_stream(
        PROCESS,
        request_serializer=pb.ProcessingRequest.SerializeToString,
        response_deserializer=pb.ProcessingResponse.FromString,
    )
    return method()


# NGINX Gateway Fabric


def nginx_messages(
    body: bytes, headers: Mapping[str, str] = JSON, *, is_in_title_case: bool = False
) -> Iterator[pb.ProcessingRequest]:
    """All that its shim says of one request: no pseudo header, `value` instead of `raw_value`, no
    `protocol_config`. Up to 2.2 it wrote keys as Go does, `Content-Type`."""
    message = pb.ProcessingRequest()
    message.request_headers.end_of_stream = not body
    own = {"x-epp-host": "epp.default.svc", "x-epp-port": "9002", "content-length": str(len(body))}
    for key, value in {**headers, **own}.items():
        message.request_headers.headers.headers.add(
            key=key.title() if is_in_title_case else key, value=value
        )
    yield message
    if body:
        message = pb.ProcessingRequest()
        message.request_body.body = body
        message.request_body.end_of_stream = True
        yield message


def nginx_destination(answer: pb.ProcessingResponse) -> str | None:
    """Where its shim finds the destination: in `raw_value`, of an answer about the headers."""
    if answer.HasField("immediate_response"):
        immediate = answer.immediate_response
        raise RefusedError(immediate.status.code, immediate.body)
    for option in answer.request_headers.response.header_mutation.set_headers:
        if option.header.key == DESTINATION:
            return option.header.raw_value.decode()
    return None


async def ask_as_nginx(stream: Any, messages: Iterator[pb.ProcessingRequest]) -> str | None:
    """Says everything, closes its half, and reads until the picker has closed the other. Raises
    `RefusedError`, and what the call raises that did not end well."""
    for message in messages:
        await stream.write(message)
    await stream.done_writing()
    found = None
    while isinstance(answer := await stream.read(), pb.ProcessingResponse):
        found = nginx_destination(answer) or found
    status = await stream.code()
    assert status is grpc.StatusCode.OK, status
    return found


# agentgateway


def one_address(value: str) -> str:
    """As Rust's `value.parse::<SocketAddr>()`: raises `ValueError` for a list."""
    return str(Address.parse(value))


@dataclass
class Agentgateway:
    """One request through it; `body` comes in pieces of `piece_bytes`. `tells_config`: releases
    before 2026 left out `protocol_config`, and behaved the same."""

    channel: grpc.aio.Channel
    tells_config: bool = True
    piece_bytes: int = 16_384
    sent: bytes = b""
    mutation: pb.HeaderMutation = field(default_factory=pb.HeaderMutation)
    _stream: Any = None

    async def pick(self, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """Streams headers and body, reads until the body has come back, and returns where to go;
        raises `RefusedError`, and `ValueError` for what it takes for no address."""
        self._stream = process(self.channel)
        await self._stream.write(self._headers(path, headers, has_body=bool(body)))
        for start in range(0, len(body), self.piece_bytes):
            message = pb.ProcessingRequest()
            message.request_body.body = body[start : start + self.piece_bytes]
            await self._stream.write(message)
        if body:
            message = pb.ProcessingRequest()
            message.request_body.end_of_stream = True
            await self._stream.write(message)
        found = None
        is_over = False
        while not is_over:
            answer = await self._stream.read()
            assert isinstance(answer, pb.ProcessingResponse), "it says: no more response messages"
            kind = answer.WhichOneof("response")
            if kind == "immediate_response":
                immediate = answer.immediate_response
                raise RefusedError(immediate.status.code, immediate.body)
            if kind == "request_headers":
                self.mutation = answer.request_headers.response.header_mutation
                found = next(
                    option.header.raw_value.decode()
                    for option in self.mutation.set_headers
                    if option.header.key == DESTINATION
                )
                is_over = not body
            elif kind == "request_body":
                piece = answer.request_body.response.body_mutation.streamed_response
                self.sent += piece.body
                is_over = piece.end_of_stream
        assert found is not None
        return one_address(found)

    async def answer(self, served: str, status: int, pieces: AsyncIterator[bytes]) -> bytes:
        """Streams the server's answer through the picker, with who served; returns what the
        client gets, once the picker has closed its half."""
        message = pb.ProcessingRequest()
        headers = message.response_headers.headers.headers
        headers.add(key="content-type", raw_value=b"application/json")
        headers.add(key=":status", value=str(status))
        facts = message.metadata_context.filter_metadata["envoy.lb"].fields
        facts[SERVED].string_value = served
        await self._stream.write(message)
        assert (await self._stream.read()).HasField("response_headers")
        async for piece in pieces:
            message = pb.ProcessingRequest()
            message.response_body.body = piece
            await self._stream.write(message)
        message = pb.ProcessingRequest()
        message.response_body.end_of_stream = True
        await self._stream.write(message)
        got = b""
        is_over = False
        while not is_over:
            answer = await self._stream.read()
            piece = answer.response_body.response.body_mutation.streamed_response
            got += piece.body
            is_over = piece.end_of_stream
        await self._stream.done_writing()
        assert await self._stream.code() is grpc.StatusCode.OK
        return got

    def _headers(
        self, path: str, headers: Mapping[str, str], *, has_body: bool
    ) -> pb.ProcessingRequest:
        """Ordinary headers as raw values, then the pseudo headers as text."""
        message = pb.ProcessingRequest()
        message.request_headers.end_of_stream = not has_body
        written = message.request_headers.headers.headers
        for key, value in headers.items():
            written.add(key=key, raw_value=value.encode())
        method = "POST" if has_body else "GET"
        pseudo = {":method": method, ":scheme": "http", ":authority": "gateway", ":path": path}
        for key, value in pseudo.items():
            written.add(key=key, value=value)
        if self.tells_config:
            duplex = ProcessingMode.FULL_DUPLEX_STREAMED
            message.protocol_config.request_body_mode = duplex
            message.protocol_config.response_body_mode = duplex
        return message


async def through_agentgateway(
    gateway: Agentgateway,
    client: httpx.AsyncClient,
    path: str,
    body: bytes,
    headers: Mapping[str, str] = JSON,
) -> tuple[str, bytes]:
    """A whole request: who served, and what its client got."""
    address = await gateway.pick(path, headers, body)
    async with client.stream(
        "POST", f"http://{address}{path}", content=gateway.sent, headers=JSON
    ) as response:
        return address, await gateway.answer(address, response.status_code, response.aiter_raw())


@asynccontextmanager
async def channel_to(port: int) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
