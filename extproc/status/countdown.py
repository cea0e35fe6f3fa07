"""`GET /queue/{request-id}`: where a waiting request stands, once or as it moves.

Asked by whoever knows the id: a client names its request with `x-request-id`, and ids that
clients did not name are random. An id that nobody waits with is 404, whatever else it is. A
stream of server-sent events (`Accept: text/event-stream`) ends when the wait does.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

EVENT_STREAM: Final = "text/event-stream"
INTERVAL_S: Final = 0.5
"""How often a stream looks whether something has changed."""
SILENCE_S: Final = 15.0
"""After so long without a change a stream tells anyway, so that a dead client is noticed."""
MAX_STREAMS: Final = 1000
"""Streams at once; one more is answered 503, and may ask again and again instead."""
MAX_ID_CHARS: Final = 200
_HEADERS: Final = {"cache-control": "no-store", "access-control-allow-origin": "*"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """A waiting request: its place from 1, of how many, and its times in seconds.

    `expected_s` is None while nothing is known about the line's pace.
    """

    position: int
    waiting: int
    waited_s: float
    expected_s: float | None = None

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
    """Answers who asks. `find` tells the place of the request with an id, None if none waits."""

    def __init__(
        self, find: Callable[[str], QueuePlace | None], *, interval_s: float = INTERVAL_S
    ) -> None:
        self._find = find
        self._interval_s = interval_s
        self._streams = 0

    def routes(self) -> list[web.RouteDef]:
        """What to add to the server of the status pages."""
        return [web.get("/queue/{id}", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        id_ = request.match_info["id"][:MAX_ID_CHARS]
        place = self._find(id_)
        if place is None:
            return _refusal(404, "not-waiting", "No request with this id waits.")
        if EVENT_STREAM not in request.headers.get("accept", ""):
            return web.json_response(place.told(), headers=_HEADERS)
        if self._streams >= MAX_STREAMS:
            return _refusal(503, "too-many-streams", "Ask again without text/event-stream.")
        self._streams += 1
        try:
            return await self._stream(request, id_)
        finally:
            self._streams -= 1

    async def _stream(self, request: web.Request, id_: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "content-type": EVENT_STREAM})
        await response.prepare(request)
        told: tuple[int, int] | None = None
        silent_s = 0.0
        try:
            while (place := self._find(id_)) is not None and not _is_gone(request):
                seen = (place.position, place.waiting)
                silent_s += self._interval_s
                if seen != told or silent_s >= SILENCE_S:
                    told, silent_s = seen, 0.0
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


def _refusal(status: int, code: str, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "code": code}
    headers = _HEADERS if status == 404 else {**_HEADERS, "retry-after": "1"}
    return web.json_response({"error": error}, status=status, headers=headers)
