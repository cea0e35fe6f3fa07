"""The wire of one stream: messages in and out, and its end, noticed also while we hold it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import ProtocolError

if TYPE_CHECKING:
    import grpc

    Context = grpc.aio.ServicerContext[pb.ProcessingRequest, pb.ProcessingResponse]


class Wire:
    """Reads are its coroutine's alone; anybody may write, one after the other."""

    __slots__ = ("_ahead", "_context", "_writing")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writing = asyncio.Lock()
        self._ahead: asyncio.Task[pb.ProcessingRequest | None] | None = None

    async def read(self) -> pb.ProcessingRequest | None:
        """The next message, None at the end; raises `ProtocolError` for bytes that are none."""
        if self._ahead is None:
            return await self._receive()
        ahead, self._ahead = self._ahead, None
        return await ahead

    async def write(self, response: pb.ProcessingResponse) -> None:
        """Send; waits for the network."""
        async with self._writing:
            await self._context.write(response)

    async def ends_before(self, event: asyncio.Future[None]) -> bool:
        """Wait for `event`; returns whether Envoy ended the stream first.

        A message that comes meanwhile is kept for `read`.
        """
        ahead = self._ahead = asyncio.create_task(self._receive())
        await asyncio.wait((ahead, event), return_when=asyncio.FIRST_COMPLETED)
        if ahead.done() and ahead.result() is not None:
            await event
        return ahead.done() and ahead.result() is None

    def close(self) -> None:
        """Read no more."""
        if self._ahead is not None:
            self._ahead.cancel()

    async def _receive(self) -> pb.ProcessingRequest | None:
        try:
            message: object = await self._context.read()
        except DecodeError as error:
            raise ProtocolError("bytes that are no message") from error
        return message if isinstance(message, pb.ProcessingRequest) else None  # or grpc.aio.EOF
