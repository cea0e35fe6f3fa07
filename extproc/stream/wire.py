"""The wire of one stream: messages in and out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
from google.protobuf.message import DecodeError

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import ProtocolError

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[pb.ProcessingRequest, pb.ProcessingResponse]


class StreamOverError(Exception):
    """Nobody is at the other end any more, so nothing can be written."""


class Wire:
    """Reads are its coroutine's alone; anybody may write, one after the other as they came."""

    __slots__ = ("_context", "_writing")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writing = asyncio.Lock()

    async def read(self) -> pb.ProcessingRequest | None:
        """The next message, None at the end; raises `ProtocolError` for bytes that are none."""
        try:
            message = await self._context.read()
        except DecodeError as error:
            raise ProtocolError("bytes that are no message") from error
        return message if isinstance(message, pb.ProcessingRequest) else None

    async def write(self, response: pb.ProcessingResponse) -> None:
        """Send; waits for the network. Raises `StreamOverError` once the stream has ended, in
        whatever way: its client left, we answered to its end, or we broke it off."""
        async with self._writing:
            try:
                await self._context.write(response)
            except grpc.aio.BaseError as error:
                raise StreamOverError from error
