"""The messages between a front and the core, and how batches of them are written.

    front to core                                      core to front
    of a front                                         of the core
    HELLO    front, version, fleet, calls              REPLIES  call, heard, is_paused, state,
    OPEN     call, path, metadata, exchange, began_at,          replies
             pool
    MESSAGE  call, message                             FINISH   call, status, text
    CLOSED   call: its client sends no more            FLEET    endpoints
    GONE     call, was_reset: it ended unfinished      ENDED    call: its end was heard
    READ     the counts of a response                  TAKEN    exchange: its counts were heard
    PONG     sent_at, of a ping                        OPENED   the core decides
                                                       PING     sent_at, is_deciding

Everything that is said in one turn of the event loop is one batch, which is read as a whole or not
at all. On one machine the processes are of one installation, so batches are written with
`marshal`. Between machines they are protobuf: `network_frames.py`; only there, pings are sent.
"""

import marshal
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from google.protobuf.message import DecodeError

from extproc.processes.fronts.lengths import MessageReader, TooLongError, with_length

HELLO: Final = 0
OPEN: Final = 1
MESSAGE: Final = 2
CLOSED: Final = 3
GONE: Final = 4
REPLIES: Final = 5
FINISH: Final = 6
FLEET: Final = 7
OPENED: Final = 8
ENDED: Final = 9
READ: Final = 10
TAKEN: Final = 11
PING: Final = 12
PONG: Final = 13

VERSION: Final = 5
"""Of the messages: a front and a core of different versions do not talk."""

Frame: TypeAlias = tuple[Any, ...]


class Codec:
    """Writes batches, each behind its length, and reads them again. What is incomplete is kept.

    `write` and `read` are of the content of a batch, which has at most `max_bytes`: `marshal`,
    unless the other side is another machine.
    """

    def __init__(
        self,
        write: Callable[[list[Frame]], bytes] = marshal.dumps,
        read: Callable[[bytes], list[Frame]] = marshal.loads,
        max_bytes: int | None = None,
    ) -> None:
        self._write = write
        self._read = read
        self._reader = MessageReader(max_bytes)

    def encode(self, batch: list[Frame]) -> bytes:
        """A batch as bytes, behind its length."""
        return with_length(self._write(batch))

    def feed(self, data: bytes) -> list[list[Frame]]:
        """The batches that are complete now. Raises `DecodeError` for what is none."""
        self._reader.feed(data)
        found = []
        try:
            while (message := self._reader.take()) is not None:
                found.append(self._read(message))
        except TooLongError:
            raise DecodeError("a batch is too long") from None
        return found
