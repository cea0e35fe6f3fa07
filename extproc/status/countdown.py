"""`GET /queue/{request-id}`: the queue position of a request, once or as a stream of changes.

The id is the `x-request-id` of the request. A client that knows it may ask: it sent the id
itself, or it got a random one. For an id that is not queued the response is 404. A stream of
server-sent events (`Accept: text/event-stream`) ends when the request leaves the queue.

A browser's `EventSource` does not retry after 404. So a stream waits a short time for an unknown
id: a page may open the stream at the same moment as it sends its request. After the event `over`
the browser reconnects, as after each end of a stream, and then gets 404.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from extproc.header_names import PREFLIGHT, READABLE, REASON
from extproc.transport.descriptors import PAGES, connections

PATH: Final = "/queue/{id}"
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
"""An expected end that moved by more than both is last, though nobody moved up."""
MAX_STREAMS: Final = 1000
"""The maximum number of open streams, and at most half of the port's connections; further ones get
503."""
MAX_ID_CHARS: Final = 200
_HEADERS: Final = {"cache-control": "no-store", **READABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """A queued request: its position from 1, among how many, and its times in seconds.

    `expected_s` is None while nothing is known about the rate of the queue. `order` is the
    discipline if it is not the order of arrival: a later request may still pass this one.
    """

    position: int
    queued: int
    waited_s: float
    expected_s: float | None = None
    order: str | None = None
    load: str = ""
    """The load that it waits for, without the time; empty if there is none."""
    note: str = ""
    """The same with the time."""

    def has_changed_since(self, last: QueuePosition) -> bool:
        """Whether the difference is large enough to send."""
        if (self.position, self.queued, self.load) != (last.position, last.queued, last.load):
            return True
        if self.waited_s - last.waited_s >= SILENCE_S:
            return True
        if self.expected_s is None or last.expected_s is None:
            return self.expected_s is not last.expected_s
        moved_s = abs(self.waited_s + self.expected_s - last.waited_s - last.expected_s)
        return moved_s > max(SLACK_S, SLACK_SHARE * self.expected_s)

    def as_json(self) -> dict[str, object]:
        """The position as JSON."""
        content: dict[str, object] = {
            "state": "queued",
            "queue_position": self.position,
            "queued": self.queued,
            "waited_s": round(self.waited_s, 1),
            "expected_s": None if self.expected_s is None else round(self.expected_s, 1),
        }
        if self.order is not None:
            content["order"] = self.order
        if self.note:
            content["note"] = self.note
        return content


class Countdown:
    """Serves the countdown. `find` returns the position of a request id for a client, None if not
    queued; `who_asks` names the client by its `authorization` and `x-api-key`, None if it may not
    ask."""

    def __init__(
        self,
        find: Callable[[str, str], QueuePosition | None],
        who_asks: Callable[[str, str], str | None] = lambda *_: "",
        *,
        interval_s: float = INTERVAL_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._find = find
        self._who_asks = who_asks
        self._interval_s = interval_s
        self._grace_s = grace_s
        self._streams = 0
        self._most = min(MAX_STREAMS, connections(PAGES) // 2)

    def routes(self) -> list[web.RouteDef]:
        """What to add to the server of the status pages."""
        return [web.get(PATH, self._answer), web.options(PATH, _allow)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self._asker(request) is None:
            return _error(
                401, "invalid-api-key", "Send a valid API key: authorization: Bearer KEY."
            )
        id_ = request.match_info["id"][:MAX_ID_CHARS]
        if EVENT_STREAM not in request.headers.get("accept", ""):
            position = self._position(request, id_)
            if position is None:
                return _not_queued()
            return web.json_response(position.as_json(), headers=_HEADERS)
        if self._streams >= self._most:
            return _error(
                503, "too-many-streams", "Send the request again without text/event-stream."
            )
        self._streams += 1
        try:
            if not await self._is_found(request, id_):
                return _not_queued()
            return await self._stream(request, id_)
        finally:
            self._streams -= 1

    def _asker(self, request: web.Request) -> str | None:
        get = request.headers.get
        return self._who_asks(get("authorization", ""), get("x-api-key", ""))

    def _position(self, request: web.Request, id_: str) -> QueuePosition | None:
        """None also if the key of who asks was revoked meanwhile."""
        client = self._asker(request)
        return None if client is None else self._find(id_, client)

    async def _is_found(self, request: web.Request, id_: str) -> bool:
        """Whether a request with this id is queued, now or within the grace time."""
        left_s = self._grace_s
        while self._position(request, id_) is None:
            if left_s <= 0.0 or _is_gone(request):
                return False
            left_s -= self._interval_s
            await asyncio.sleep(self._interval_s)
        return True

    async def _stream(self, request: web.Request, id_: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "content-type": EVENT_STREAM})
        await response.prepare(request)
        last: QueuePosition | None = None
        try:
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            while not _is_gone(request):
                position = self._position(request, id_)
                if position is None:
                    break
                if last is None or position.has_changed_since(last):
                    last = position
                    await response.write(_event("position", position.as_json()))
                await asyncio.sleep(self._interval_s)
            await response.write(_event("over", {"state": "over"}))
        except ConnectionResetError:
            pass  # the client left
        return response


async def _allow(_: web.Request) -> web.Response:
    """The answer to a browser's preflight, for proxies that pass it on. Envoy answers it itself."""
    return web.Response(headers=PREFLIGHT)


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _event(name: str, content: dict[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(content)}\n\n".encode()


def _not_queued() -> web.Response:
    return _error(404, "not-queued", "No request with this id is queued.")


def _error(status: int, code: str, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "code": code}
    headers = {**_HEADERS, REASON: code}
    if status == 503:
        headers["retry-after"] = "1"
    return web.json_response({"error": error}, status=status, headers=headers)
