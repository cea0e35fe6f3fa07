"""A log that an operator reads through the picker."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from extproc.pb.coxswain.v1 import keeper_pb2 as pb

MAX_MESSAGES: Final = 100
"""Messages that wait for a slow reader; then the oldest are dropped, and counted."""


class LogStream:
    """Receives the messages of one log request. Belongs to one event loop."""

    def __init__(self, id_: int, request: pb.LogRequest) -> None:
        self.id = id_
        self.request = request
        self._messages: deque[pb.LogLines] = deque()
        self._due = asyncio.Event()
        self._is_over = False

    def receive(self, message: pb.LogLines) -> None:
        """Lines came from the keeper."""
        self._messages.append(message)
        if len(self._messages) > MAX_MESSAGES:
            lost = self._messages.popleft()
            self._messages[0].dropped += lost.dropped + len(lost.lines)
        self._due.set()

    def end(self) -> None:
        """The keeper is gone: no more lines come."""
        self._is_over = True
        self._due.set()

    async def messages(self) -> AsyncIterator[pb.LogLines]:
        """The messages until the last one, or until the keeper is gone."""
        while True:
            while self._messages:
                message = self._messages.popleft()
                yield message
                if message.is_last:
                    return
            if self._is_over:
                return
            self._due.clear()
            await self._due.wait()
