"""Passes items from the event loop to a slow sender in a thread; drops items above its bound.

`put` never waits and never raises. The thread passes batches to `send`; while `send` hangs, the
queue fills up to its bound, and then each further item is dropped and counted.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger("coxswain.telemetry")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherOptions:
    """`delay_s` is how long a thing may lie before it is sent, unless a batch is full."""

    max_pending: int
    max_batch: int
    delay_s: float


class Batcher(Generic[T]):
    """A bounded queue with its thread. `send` returns how many of the batch it failed to send.

    The thread is a daemon: a receiver that hangs does not keep the process from ending. Its `name`
    says what it does: `send` reports its failures itself, but for those that it raises.
    """

    def __init__(self, name: str, send: Callable[[list[T]], int], options: BatcherOptions) -> None:
        self._send = send
        self._options = options
        self._queue: deque[T] = deque()
        self._something = threading.Event()
        self._enough = threading.Event()
        self._is_closing = False
        self._overflowed = 0
        self._failed = 0
        self._is_raising = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """The number of dropped items: the queue was full, or sending failed."""
        return self._overflowed + self._failed

    def put(self, thing: T) -> None:
        """Send it soon, or drop it if the queue is full."""
        queue = self._queue
        if self._is_closing or len(queue) >= self._options.max_pending:
            self._overflowed += 1
            return
        queue.append(thing)
        if not self._something.is_set():
            self._something.set()
        if len(queue) >= self._options.max_batch and not self._enough.is_set():
            self._enough.set()

    def close(self, timeout_s: float) -> bool:
        """Send what is left within `timeout_s`; blocks; returns whether all of it went out."""
        self._is_closing = True
        self._something.set()
        self._enough.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not (self._is_closing and not self._queue):
            self._something.wait()
            self._enough.wait(self._options.delay_s)
            # Cleared before the queue is read: a later `put` sets it again, none is forgotten.
            self._enough.clear()
            self._something.clear()
            while self._queue:
                self._send_batch()

    def _send_batch(self) -> None:
        count = min(len(self._queue), self._options.max_batch)
        batch = [self._queue.popleft() for _ in range(count)]
        try:
            self._failed += self._send(batch)
        except Exception as error:
            self._failed += count
            if not self._is_raising:
                self._is_raising = True
                log.warning(
                    "cannot %s; requests are not affected", self._thread.name, exc_info=error
                )
            return
        if self._is_raising:
            self._is_raising = False
            log.info("can %s again", self._thread.name)
