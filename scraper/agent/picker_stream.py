"""A stream to the picker that is opened again whenever it ends, for agents and keepers.

`Attempts` says when the next one begins, by a `Backoff`, and logs what there is to know;
`run_stream` runs what reads and what writes one stream until either ends, and `received` reads it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

import grpc

PICKER_SILENT_S: Final = 8.0
"""The picker sends a message at least every two seconds."""
MAX_DETAILS_CHARS: Final = 300
FIRST_S: Final = 0.1
"""The first pause between two attempts to connect."""
LONGEST_S: Final = 2.0
"""Short, so that a restarted picker soon has its fleet again."""
REJECTED_S: Final = 15.0
"""After a rejection, which repeats until an operator fixes its cause."""

REJECTIONS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)

Metadata = tuple[tuple[str, str], ...]
MessageT = TypeVar("MessageT")


class LinkError(ConnectionError):
    """The stream ended, or never began. `is_rejection`: a retry will fail in the same way.
    `is_taken`: the picker has another stream in its place."""

    def __init__(self, text: str, *, is_rejection: bool = False, is_taken: bool = False) -> None:
        super().__init__(text)
        self.is_rejection = is_rejection
        self.is_taken = is_taken


class Backoff:
    """Doubles from `FIRST_S` to `LONGEST_S`, each spread over its upper half, so that many
    agents do not come back in step."""

    def __init__(self, random: Callable[[], float]) -> None:
        """`random` gives numbers in [0, 1)."""
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        """Reset after a working connection."""
        self._failures = 0

    def next_s(self, *, is_rejected: bool) -> float:
        """Seconds until the next attempt."""
        base_s = min(LONGEST_S, FIRST_S * 2.0 ** min(self._failures, 9))
        if is_rejected:
            base_s = REJECTED_S
        self._failures += 1
        return base_s * (0.5 + 0.5 * self._random())


class Attempts:
    """One stream after another to one picker: each new problem is logged once, and each new
    connection."""

    def __init__(
        self, log: logging.Logger, clock: Callable[[], float], random: Callable[[], float]
    ) -> None:
        self._log = log
        self._clock = clock
        self._backoff = Backoff(random)
        self._began_at = clock()
        self._problem: str | None = None
        """That of the last stream: None before the first, empty while it works."""

    def begin(self) -> None:
        """A stream is opened now."""
        self._began_at = self._clock()

    def connected(self, picker: str) -> None:
        """The picker, which is at this host:port, has sent something."""
        if self._problem is None:
            self._log.info("connected to the picker at %s", picker)
        elif self._problem:
            self._log.info("connected to the picker at %s again", picker)
        self._problem = ""

    def failed(self, picker: str, problem: str) -> None:
        """The stream ended for this reason."""
        if problem != self._problem:
            self._problem = problem
            self._log.warning("picker %s: %s; retrying", picker, problem)

    def pause_s(self, *, is_rejected: bool) -> float:
        """Seconds until the next attempt; short after a stream that worked."""
        if self._clock() - self._began_at > LONGEST_S:
            self._backoff.reset()
        return self._backoff.next_s(is_rejected=is_rejected)


async def run_stream(
    call: grpc.aio.StreamStreamCall[Any, Any], *parts: Coroutine[Any, Any, None]
) -> None:
    """Run these parts of one stream until the first ends, then end the stream and the others.

    Raises `LinkError` for what the picker or the network did, and what else a part raised.
    """
    tasks = tuple(asyncio.ensure_future(part) for part in parts)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        call.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, LinkError):
            raise outcome
    for outcome in outcomes:
        if isinstance(outcome, grpc.aio.AioRpcError):
            raise _explained(outcome)
    for outcome in outcomes:
        # A part that writes to a stream that has just ended gets one of these.
        if isinstance(outcome, Exception) and not isinstance(
            outcome, asyncio.InvalidStateError | grpc.aio.UsageError
        ):
            raise outcome


async def received(
    call: grpc.aio.StreamStreamCall[Any, MessageT], first_within_s: float, silent_s: float
) -> AsyncIterator[MessageT]:
    """The picker's messages until it ends the stream. Raises `LinkError` after a silence: longer
    than `first_within_s` before the first one, and `silent_s` later."""
    messages: AsyncIterator[MessageT] = aiter(call)
    limit_s = first_within_s
    while True:
        try:
            async with asyncio.timeout(limit_s):
                message = await anext(messages)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise LinkError(f"the picker has sent nothing for {limit_s:g} s") from None
        limit_s = silent_s
        yield message


def _explained(error: grpc.aio.AioRpcError) -> LinkError:
    text = " ".join((error.details() or error.code().name).split())[:MAX_DETAILS_CHARS]
    is_taken = error.code() is grpc.StatusCode.ALREADY_EXISTS
    return LinkError(text, is_rejection=error.code() in REJECTIONS, is_taken=is_taken)
