"""The messages between a front and the core, and how batches of them are written.

    front to core                                      core to front
    of a front                                         of the core
    HELLO    front, version, fleet, calls              REPLIES  call, heard, is_paused, state,
    OPEN     call, path, metadata, exchange, began_at           replies
    MESSAGE  call, message                             FINISH   call, status, text
    CLOSED   call: its client sends no more            FLEET    endpoints
    GONE     call: it ended before it was finished     ENDED    call: its end was heard
    READ     the counts of a response                  TAKEN    exchange: its counts were heard
                                                       OPENED   the core decides

Everything that is said in one turn of the event loop is one batch, which is read as a whole or not
at all. The processes are of one machine and one installation, so batches are written with
`marshal`.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any, Final, TypeAlias

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

VERSION: Final = 2
"""Of the messages: a front and a core of different versions do not talk."""

Frame: TypeAlias = tuple[Any, ...]
_LENGTH: Final = struct.Struct("<I")


def encode(batch: list[Frame]) -> bytes:
    """A batch as bytes, behind its length."""
    data = marshal.dumps(batch)
    return _LENGTH.pack(len(data)) + data


class BatchReader:
    """Cuts a stream of bytes into batches. What is incomplete is kept."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> list[list[Frame]]:
        """The batches that are complete now."""
        kept = self._kept
        kept += data
        found, start = [], 0
        while len(kept) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(kept, start)
            end = start + _LENGTH.size + size
            if len(kept) < end:
                break
            found.append(marshal.loads(bytes(kept[start + _LENGTH.size : end])))  # noqa: S302 - our own process wrote it
            start = end
        if start:
            del kept[:start]
        return found
