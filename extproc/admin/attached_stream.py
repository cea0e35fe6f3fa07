"""The stream of a program that attaches: its reader, its writer, and its end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final, TypeVar

import grpc

from extproc.admin.call_errors import CallError, Context, invalid

WRITE_S: Final = 1.0

MessageT = TypeVar("MessageT")


@dataclass(slots=True, eq=False)
class AttachedStream:
    """`due` wakes the writer, which sends what is to be sent until `has_ended`."""

    due: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    end: tuple[grpc.StatusCode, str] | None = field(default=None, init=False)
    is_over: bool = field(default=False, init=False)

    @property
    def has_ended(self) -> bool:
        """Whether either side has left."""
        return self.is_over or self.end is not None

    def close(self, code: grpc.StatusCode, text: str) -> None:
        """End it from our side."""
        if self.end is None:
            self.end = (code, text)
            self.due.set()

    async def run(
        self,
        context: Context,
        reading: Coroutine[None, None, None],
        writing: Coroutine[None, None, None],
        left: Callable[[], None],
        log: logging.Logger,
        who: str,
    ) -> None:
        """Read and write until either side leaves; `left` is called then. A `CallError` of a
        message ends the stream, and `log` says that `who` was rejected."""
        reader, writer = asyncio.create_task(reading), asyncio.create_task(writing)
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            for task in (reader, writer):
                if task.done():
                    task.result()
        except CallError as error:
            log.warning("%s was rejected: %s", who, error)
            self.close(error.code, error.text)
        finally:
            left()
            reader.cancel()
            # A write that is cut off may take the stream's status with it, so it gets a moment.
            self.is_over = True
            self.due.set()
            await asyncio.wait((writer,), timeout=WRITE_S)
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
        if self.end is not None:
            await context.abort(*self.end)

    async def read(
        self, messages: AsyncIterator[MessageT | None], take: Callable[[MessageT], None], kind: str
    ) -> None:
        """Take each message of this kind; raises `CallError` for one that is invalid."""
        async for message in messages:
            if message is None:
                raise invalid(f"not a valid {kind}")
            if self.end is not None:
                return
            take(message)
