"""`/v1/files` and `/v1/batches` as OpenAI's API has them, for the clients of a fleet.

Each client sees its own files and batches alone: its name is that of its key.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from extproc.batches.lines import ENDPOINTS, is_storable
from extproc.batches.runner import InStore
from extproc.batches.store import (
    PART_BYTES,
    PURPOSES,
    Batch,
    BatchStore,
    BusyFileError,
    FullError,
    StoredFile,
)
from extproc.header_names import REASON
from extproc.security.known_keys import KnownKey
from extproc.settings.client_keys import ID_CHARS
from extproc.transport.descriptors import BATCHES
from extproc.transport.http_port import HttpPort

OWNER: Final = web.RequestKey("owner", str)
KEY: Final = web.RequestKey("key", str)
MAX_PAGE: Final = 10_000
MAX_METADATA: Final = 16
MAX_JSON_BYTES: Final = 64 * 1024
MAX_NAME_CHARS: Final = 255
DAY_S: Final = 86_400.0
SHUTDOWN_S: Final = 1.0
log = logging.getLogger("coxswain.batches")
_WINDOW: Final = re.compile(r"([1-9]\d{0,2})([hd])")
_UNITS: Final = {"h": 3600.0, "d": DAY_S}

WhoAsks = Callable[[str, str], KnownKey | None]
"""The key in these headers, `authorization` and `x-api-key`, without a name where keys are not
checked; None if its client may not ask for anything."""


class ApiError(Exception):
    """What the client gets in place of an answer; quotes nothing of what it sent."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


class BatchApi:
    """The HTTP server, from `start` to `stop`."""

    def __init__(
        self,
        store: BatchStore,
        in_store: InStore,  # type: ignore[type-arg]  # of any result
        who_asks: WhoAsks,
        *,
        on_new: Callable[[], None],
        on_ended: Callable[[str], None],
        max_file_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`on_new` is called when lines wait, `on_ended` with a batch that was cancelled."""
        self._store = store
        self._in_store = in_store
        self._who_asks = who_asks
        self._on_new = on_new
        self._on_ended = on_ended
        self._max_file_bytes = max_file_bytes
        self._now = now
        app = web.Application(client_max_size=MAX_JSON_BYTES, middlewares=[self._answered])
        app.router.add_get("/healthz", _alive)
        app.router.add_post("/v1/files", self._create_file)
        app.router.add_get("/v1/files", self._list_files)
        app.router.add_get("/v1/files/{id}", self._get_file)
        app.router.add_delete("/v1/files/{id}", self._delete_file)
        app.router.add_get("/v1/files/{id}/content", self._get_content)
        app.router.add_post("/v1/batches", self._create_batch)
        app.router.add_get("/v1/batches", self._list_batches)
        app.router.add_get("/v1/batches/{id}", self._get_batch)
        app.router.add_post("/v1/batches/{id}/cancel", self._cancel_batch)
        self._port = HttpPort(app, "batches", BATCHES, SHUTDOWN_S)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (`port` 0 takes a free one); raises `OSError`."""
        return await self._port.start(host, port)

    async def stop(self) -> None:
        """Close all connections."""
        await self._port.stop()

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Errors are in OpenAI's format; nobody without a key gets any further."""
        try:
            if request.path != "/healthz":
                headers = request.headers
                key = self._who_asks(headers.get("authorization", ""), headers.get("x-api-key", ""))
                if key is None:
                    raise ApiError(
                        401,
                        "The API key is missing, wrong, or not one for batches.",
                        "invalid_api_key",
                    )
                request[OWNER], request[KEY] = key.client, key.digest[:ID_CHARS]
            return await handler(request)
        except ApiError as error:
            return _error(error)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return _error(ApiError(error.status, error.reason, "invalid_request"))
        except Exception as error:  # noqa: BLE001 - its text may quote what a client sent
            log.error("answering a %s failed: %s", request.method, type(error).__name__)
            return _error(ApiError(500, "This is a bug of Coxswain.", "internal_error"))

    # Files

    async def _create_file(self, request: web.Request) -> web.Response:
        if not request.content_type.startswith("multipart/"):
            raise ApiError(400, "Send a form, multipart/form-data.", "invalid_request")
        id_ = await self._in_store(self._store.begin_file, request[OWNER], PURPOSES[0], self._now())
        is_whole = False
        try:
            filename = await self._read_form(request, id_)
            found = await self._in_store(self._store.end_file, id_, filename)
            is_whole = True
        except FullError:
            message = "There is no room for more files: delete some, or ask the operator."
            raise ApiError(507, message, "storage_full") from None
        except (ValueError, HttpProcessingError):
            raise ApiError(400, "The form cannot be read.", "invalid_request") from None
        finally:
            if not is_whole:
                await asyncio.shield(self._in_store(self._store.drop_file, id_))
        return _json(found.as_json())

    async def _read_form(self, request: web.Request, id_: str) -> str:
        """The name of the file in a form, whose content is stored under that id."""
        purpose = filename = None
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                raise ApiError(400, "The form has a form within it.", "invalid_request")
            if part.name == "file" and filename is None:
                # Its bytes need not be UTF-8.
                filename = (part.filename or "file").encode(errors="replace").decode()
                filename = filename[:MAX_NAME_CHARS]
                await self._keep(part, id_)
            elif part.name == "purpose":
                purpose = (await part.read_chunk(100)).decode(errors="replace")
        if purpose != PURPOSES[0]:
            raise ApiError(400, "The purpose must be batch.", "invalid_purpose", "purpose")
        if filename is None:
            raise ApiError(400, "The form has no file.", "missing_file", "file")
        return filename

    async def _keep(self, part: BodyPartReader, id_: str) -> None:
        size = 0
        buffer = bytearray()
        while chunk := await part.read_chunk():
            size += len(chunk)
            if size > self._max_file_bytes:
                message = f"A file has up to {self._max_file_bytes} bytes."
                raise ApiError(413, message, "file_too_large", "file")
            buffer += chunk
            if len(buffer) >= PART_BYTES:
                await self._in_store(self._store.add_part, id_, bytes(buffer))
                buffer.clear()
        if buffer:
            await self._in_store(self._store.add_part, id_, bytes(buffer))

    async def _list_files(self, request: web.Request) -> web.Response:
        purpose = request.query.get("purpose", "")
        after, limit = _page(request, MAX_PAGE)
        found = await self._in_store(self._store.files, request[OWNER], purpose, after, limit + 1)
        return _list(found, limit)

    async def _file(self, request: web.Request) -> StoredFile:
        found: StoredFile | None = await self._in_store(
            self._store.file, request[OWNER], request.match_info["id"]
        )
        if found is None:
            raise _no_file()
        return found

    async def _get_file(self, request: web.Request) -> web.Response:
        return _json((await self._file(request)).as_json())

    async def _delete_file(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        try:
            is_deleted = await self._in_store(self._store.delete_file, request[OWNER], id_)
        except BusyFileError:
            message = "A batch that has not ended needs this file: cancel it first."
            raise ApiError(409, message, "file_in_use") from None
        if not is_deleted:
            raise _no_file()
        return _json({"id": id_, "object": "file", "deleted": True})

    async def _get_content(self, request: web.Request) -> web.StreamResponse:
        file = await self._file(request)
        response = web.StreamResponse(headers={"content-type": "application/octet-stream"})
        response.content_length = file.bytes
        await response.prepare(request)
        place = 0
        while found := await self._in_store(self._store.read, file.id, place):
            content, place = found
            await response.write(content)
        await response.write_eof()
        return response

    # Batches

    async def _create_batch(self, request: web.Request) -> web.Response:
        asked = await _object(request)
        endpoint, file_id = asked.get("endpoint"), asked.get("input_file_id")
        if endpoint not in ENDPOINTS:
            message = f"The endpoint must be one of {', '.join(ENDPOINTS)}."
            raise ApiError(400, message, "invalid_endpoint", "endpoint")
        window = asked.get("completion_window", "24h")
        owner = request[OWNER]
        file = None
        if isinstance(file_id, str) and is_storable(file_id):
            file = await self._in_store(self._store.file, owner, file_id)
        if file is None or file.purpose != PURPOSES[0]:
            message = "There is no such file with the purpose batch."
            raise ApiError(400, message, "invalid_file", "input_file_id")
        batch: Batch = await self._in_store(
            self._store.create,
            *(owner, file.id, endpoint, _window(window), _metadata(asked), self._now()),
            request[KEY],
        )
        self._on_new()
        return _json(batch.as_json())

    async def _list_batches(self, request: web.Request) -> web.Response:
        after, limit = _page(request, 100, usual=20)
        found = await self._in_store(
            self._store.batches, request[OWNER], after, limit + 1, self._now()
        )
        return _list(found, limit)

    async def _get_batch(self, request: web.Request) -> web.Response:
        return _json(_found(await self._asked(self._store.batch, request)))

    async def _cancel_batch(self, request: web.Request) -> web.Response:
        batch = _found(await self._asked(self._store.cancel, request))
        self._on_ended(request.match_info["id"])
        return _json(batch)

    async def _asked(
        self, call: Callable[[str, str, float], Batch | None], request: web.Request
    ) -> Batch | None:
        found: Batch | None = await self._in_store(
            call, request[OWNER], request.match_info["id"], self._now()
        )
        return found


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="alive\n")


def _found(batch: Batch | None) -> dict[str, Any]:
    if batch is None:
        raise ApiError(404, "There is no such batch.", "batch_not_found")
    return batch.as_json()


def _no_file() -> ApiError:
    return ApiError(404, "There is no such file.", "file_not_found")


async def _object(request: web.Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.read())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ApiError(400, "The body must be a JSON object.", "invalid_request")
    return found


def _window(text: object) -> tuple[str, float]:
    """How long a batch may take: as it is written, and in seconds."""
    found = _WINDOW.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        message = "The completion_window is a number of hours or days, such as 24h or 7d."
        raise ApiError(400, message, "invalid_completion_window", "completion_window")
    return found[0], int(found[1]) * _UNITS[found[2]]


def _metadata(asked: Mapping[str, Any]) -> dict[str, str]:
    found = asked.get("metadata") or {}
    is_valid = isinstance(found, dict) and len(found) <= MAX_METADATA
    if not (is_valid and all(isinstance(value, str) for value in found.values())):
        message = f"metadata must have up to {MAX_METADATA} keys with texts."
        raise ApiError(400, message, "invalid_metadata", "metadata")
    return dict(found)


def _page(request: web.Request, most: int, usual: int | None = None) -> tuple[str, int]:
    """From behind which id a list is asked for, and how much of it."""
    text = request.query.get("limit", str(usual or most))
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise ApiError(400, f"limit must be 1 to {most}.", "invalid_limit", "limit")
    return request.query.get("after", ""), int(text)


def _list(found: list[Any], limit: int) -> web.Response:
    data = [one.as_json() for one in found[:limit]]
    return _json(
        {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
            "has_more": len(found) > limit,
        }
    )


def _json(value: dict[str, Any], status: int = 200) -> web.Response:
    return web.json_response(value, status=status, headers={"cache-control": "no-store"})


def _error(error: ApiError) -> web.Response:
    body = {
        "message": str(error),
        "type": "invalid_request_error",
        "param": error.param,
        "code": error.code,
    }
    answer = _json({"error": body}, error.status)
    answer.headers[REASON] = error.code.replace("_", "-")
    return answer
