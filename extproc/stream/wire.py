"""The wire of one stream: messages in and out, and its end, noticed also while we hold it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias, cast

from google.protobuf.message import DecodeError

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    import grpc

    Context = grpc.aio.ServicerContext[pb.ProcessingRequest, pb.ProcessingResponse]

Message: TypeAlias = object
"""A `ProcessingRequest`, or `grpc.aio.EOF`."""


class Wire:
    """Reads are its coroutine's alone; anybody may write, one after the other."""

    __slots__ = ("_ahead", "_context", "_event", "_writing")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writing = asyncio.Lock()
        self._ahead: asyncio.Task[Message] | None = None
        self._event: asyncio.Future[None] | None = None

    async def read(self) -> pb.ProcessingRequest | None:
        """The next message, None at the end; raises `ProtocolError` for bytes that are none."""
        ahead, self._ahead = self._ahead, None
        try:
            message = await (self._context.read() if ahead is None else ahead)
        except DecodeError as error:
            raise ProtocolError("bytes that are no message") from error
        return message if isinstance(message, pb.ProcessingRequest) else None

    async def write(self, response: pb.ProcessingResponse) -> None:
        """Send; waits for the network."""
        async with self._writing:
            await self._context.write(response)

    async def ends_before(self, event: asyncio.Future[None]) -> bool:
        """Wait for `event`; returns whether Envoy ended the stream first. Raises as `read` does.

        A message that comes meanwhile is kept for `read`. Ten thousand wait here: a callback
        and a task are all that each may cost.
        """
        self._event = event
        self._ahead = asyncio.create_task(
            cast("Coroutine[None, None, Message]", self._context.read())
        )
        self._ahead.add_done_callback(self._has_read_ahead)
        await event
        return _is_over(self._ahead) and await self.read() is None

    def _has_read_ahead(self, ahead: asyncio.Task[Message]) -> None:
        event = self._event
        if event is not None and not event.done() and _is_over(ahead):
            event.set_result(None)

    def close(self) -> None:
        """Read no more."""
        if self._ahead is not None:
            self._ahead.cancel()


def _is_over(ahead: asyncio.Task[Message]) -> bool:
    """Whether what was read tells that nothing comes any more."""
    if not ahead.done():
        return False
    if ahead.cancelled() or ahead.exception() is not None:
        return True
    return not isinstance(ahead.result(), pb.ProcessingRequest)
