"""`GET /queue/{request-id}`: where a waiting request stands, once or as it moves.

Asked by whoever knows the id: a client names its request with `x-request-id`, and ids that
clients did not name are random. An id that nobody waits with is 404, whatever else it is. A
stream of server-sent events (`Accept: text/event-stream`) ends when the wait does.

A browser's `EventSource` takes 404 for the end and asks no more. So a stream is given some grace
first: a page that sends its request and opens the stream in one breath may be here before it.
After `over` the browser asks once more, as it does whenever a stream ends, and 404 stops it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

EVENT_STREAM: Final = "text/event-stream"
INTERVAL_S: Final = 0.5
"""The interval at which a stream checks for changes."""
SILENCE_S: Final = 15.0
"""After this time without a change a stream sends anyway, to detect a dead client."""
GRACE_S: Final = 1.0
"""How long a stream waits for an unknown request before it ends with 404."""
RETRY_MS: Final = 1000
"""The delay after which a browser reconnects a stream."""
SLACK_S: Final = 1.0
SLACK_SHARE: Final = 0.2
"""An expected end that moved by more than both is told, though nobody moved up."""
MAX_STREAMS: Final = 1000
"""Streams at once; one more is answered 503, and may ask again and again instead."""
MAX_ID_CHARS: Final = 200
_HEADERS: Final = {"cache-control": "no-store", "access-control-allow-origin": "*"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """A waiting request: its place from 1, of how many, and its times in seconds.

    `expected_s` is None while nothing is known about the line's pace.
    """

    position: int
    waiting: int
    waited_s: float
    expected_s: float | None = None

    def is_news_after(self, told: QueuePosition) -> bool:
        """Whether the difference is large enough to send."""
        if (self.position, self.waiting) != (told.position, told.waiting):
            return True
        if self.waited_s - told.waited_s >= SILENCE_S:
            return True
        if self.expected_s is None or told.expected_s is None:
            return self.expected_s is not told.expected_s
        moved_s = abs(self.waited_s + self.expected_s - told.waited_s - told.expected_s)
        return moved_s > max(SLACK_S, SLACK_SHARE * self.expected_s)

    def told(self) -> dict[str, object]:
        """As JSON shows it."""
        return {
            "state": "waiting",
            "position": self.position,
            "waiting": self.waiting,
            "waited_s": round(self.waited_s, 1),
            "expected_s": None if self.expected_s is None else round(self.expected_s, 1),
        }


class Countdown:
    """Serves the countdown. `find` returns the position of a request id, None if not queued."""

    def __init__(
        self,
        find: Callable[[str], QueuePosition | None],
        *,
        interval_s: float = INTERVAL_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._find = find
        self._interval_s = interval_s
        self._grace_s = grace_s
        self._streams = 0

    def routes(self) -> list[web.RouteDef]:
        """What to add to the server of the status pages."""
        return [web.get("/queue/{id}", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        id_ = request.match_info["id"][:MAX_ID_CHARS]
        if EVENT_STREAM not in request.headers.get("accept", ""):
            place = self._find(id_)
            if place is None:
                return _not_waiting()
            return web.json_response(place.told(), headers=_HEADERS)
        if self._streams >= MAX_STREAMS:
            return _refusal(
                503, "too-many-streams", "Send the request again without text/event-stream."
            )
        self._streams += 1
        try:
            if not await self._comes(request, id_):
                return _not_waiting()
            return await self._stream(request, id_)
        finally:
            self._streams -= 1

    async def _comes(self, request: web.Request, id_: str) -> bool:
        """Whether a request with this id waits, or begins to within the grace."""
        left_s = self._grace_s
        while self._find(id_) is None:
            if left_s <= 0.0 or _is_gone(request):
                return False
            left_s -= self._interval_s
            await asyncio.sleep(self._interval_s)
        return True

    async def _stream(self, request: web.Request, id_: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "content-type": EVENT_STREAM})
        await response.prepare(request)
        told: QueuePosition | None = None
        try:
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            while (place := self._find(id_)) is not None and not _is_gone(request):
                if told is None or place.is_news_after(told):
                    told = place
                    await response.write(_event("place", place.told()))
                await asyncio.sleep(self._interval_s)
            await response.write(_event("over", {"state": "over"}))
        except ConnectionResetError:
            pass  # the client left
        return response


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _event(name: str, content: dict[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(content)}\n\n".encode()


def _not_waiting() -> web.Response:
    return _refusal(404, "not-waiting", "No request with this id is queued.")


def _refusal(status: int, code: str, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "code": code}
    headers = _HEADERS if status == 404 else {**_HEADERS, "retry-after": "1"}
    return web.json_response({"error": error}, status=status, headers=headers)
