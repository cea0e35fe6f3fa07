"""A client of a Kubernetes API server: reads, replaces, lists and watches objects.

Token and CA are those that Kubernetes mounts for the pod's service account. The token is read for
each request, as it is renewed in place.
"""

import json
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx

from extproc.security.secret_file import SecretFileError, is_header_value, read_secret

MAX_REASON: Final = 200
MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""Of one line of a watch: several times the largest object that etcd takes."""
KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A watch is silent for long: so a machine that is gone is noticed within half a minute."""

Object = dict[str, Any]
Parameters = Mapping[str, str]


class ApiServerError(Exception):
    """The API server cannot be reached, or says no; `str(error)` says why, without any token."""


class ConflictError(Exception):
    """Another one has replaced, created or deleted the object since it was read."""


class ExpiredError(ApiServerError):
    """What is asked for begins at a version that the API server has forgotten: list again."""


class NoSuchKindError(ApiServerError):
    """The API server has no such kind of objects: its CRD is not installed."""


class ApiServer:
    """One API server. `folder` holds `token` and `ca.crt`; without `ca.crt` the system's CAs count.
    A call that is no watch ends within `timeout_s`. `role` is the file with the role that the
    service account needs, for errors. Belongs to one event loop."""

    def __init__(self, url: str, folder: Path, timeout_s: float, role: str) -> None:
        """Raises `OSError` and `ssl.SSLError` for a CA file that cannot be used."""
        ca = folder / "ca.crt"
        context = ssl.create_default_context(cafile=str(ca) if ca.exists() else None)
        self._role = role
        self._token = folder / "token"
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            base_url=url,
            timeout=timeout_s,
            transport=httpx.AsyncHTTPTransport(
                verify=context, trust_env=False, socket_options=KEEPALIVE
            ),
            trust_env=False,
        )

    async def read(self, path: str) -> Object | None:
        """The object, or None if there is none. Raises `ApiServerError`."""
        answer = await self._ask("GET", path)
        return None if answer.status_code == HTTPStatus.NOT_FOUND else self._object(answer)

    async def create(self, collection: str, body: Object) -> Object:
        """Create an object; returns it as it is now. Raises `ConflictError` and
        `ApiServerError`."""
        return self._object(await self._ask("POST", collection, body))

    async def replace(self, path: str, body: Object) -> Object:
        """Replace an object by `body`, which has the `resourceVersion` that was read; returns it as
        it is now. Raises `ConflictError` and `ApiServerError`."""
        answer = await self._ask("PUT", path, body)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise ConflictError
        return self._object(answer)

    async def list_page(self, collection: str, parameters: Parameters) -> Object:
        """One page of a list. Raises `ExpiredError`, `NoSuchKindError` and `ApiServerError`."""
        answer = await self._ask("GET", collection, parameters=parameters)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise NoSuchKindError(f"the API server has no {_kind(collection)}")
        found = self._object(answer)
        if not isinstance(found.get("items") or [], list):
            raise ApiServerError("the API server answered something that is no list")
        return found

    @asynccontextmanager
    async def watch(
        self, collection: str, parameters: Parameters, silence_s: float
    ) -> AsyncIterator[AsyncIterator[Object]]:
        """The events of a watch until the server ends it; it may be silent for `silence_s`. The
        server has agreed to it when it is entered.

        It and its events raise `ExpiredError`, `NoSuchKindError` and `ApiServerError`.
        """
        timeout = httpx.Timeout(self._timeout_s, read=silence_s)
        with _translated():
            async with self._client.stream(
                "GET", collection, params=parameters, headers=self._headers(), timeout=timeout
            ) as answer:
                if answer.status_code == HTTPStatus.NOT_FOUND:
                    raise NoSuchKindError(f"the API server has no {_kind(collection)}")
                if answer.status_code != HTTPStatus.OK:
                    await answer.aread()
                    raise self._rejection(answer)
                async with aclosing(_events(answer)) as events:
                    yield events

    async def aclose(self) -> None:
        """End all connections."""
        await self._client.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        parameters: Parameters | None = None,
    ) -> httpx.Response:
        headers = self._headers()
        with _translated():
            return await self._client.request(
                method, path, json=body, params=parameters, headers=headers
            )

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "application/json"}
        token = self._read_token()
        if token:
            headers["authorization"] = f"Bearer {token}"
        return headers

    def _read_token(self) -> str:
        """Empty where there is no such file."""
        if not self._token.exists():
            return ""
        try:
            token = read_secret(self._token)
        except SecretFileError as error:
            raise ApiServerError(str(error)) from None
        if token and not is_header_value(token):
            raise ApiServerError(f"{self._token} holds no token")
        return token

    def _object(self, answer: httpx.Response) -> Object:
        if answer.status_code == HTTPStatus.CONFLICT:
            raise ConflictError
        if answer.status_code not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise self._rejection(answer)
        found = _tree(answer.content)
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise ApiServerError("the API server answered something that is no object")
        return found

    def _rejection(self, answer: httpx.Response) -> ApiServerError:
        status = answer.status_code
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return ApiServerError(
                f"the API server rejects the service account ({status}): it needs the role of "
                f"{self._role}"
            )
        if status == HTTPStatus.GONE:
            return ExpiredError("the API server has forgotten the version that was asked for")
        return ApiServerError(f"the API server answered {status}: {_message(answer)}")


@contextmanager
def _translated() -> Iterator[None]:
    """What goes wrong on the way becomes an `ApiServerError`."""
    try:
        yield
    except httpx.TimeoutException:
        raise ApiServerError("no answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
        text = str(error).partition("\n")[0] or type(error).__name__
        raise ApiServerError(text[:MAX_REASON]) from None
    except AttributeError:  # anyio's over uvloop, of a connection that was reset as it was made
        raise ApiServerError("the connection was reset") from None


async def _events(answer: httpx.Response) -> AsyncGenerator[Object]:
    """Lines end with a line feed alone: httpx would end them within strings of JSON too."""
    rest = b""
    with _translated():
        async for chunk in answer.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield _event(line)
            if len(rest) > MAX_EVENT_BYTES:
                raise ApiServerError("the API server sent an event larger than any object")


def _event(line: bytes) -> Object:
    found = _tree(line)
    if not isinstance(found, dict) or not isinstance(found.get("object"), dict):
        raise ApiServerError("the API server sent something that is no event")
    if found.get("type") == "ERROR":
        status = found["object"]
        if status.get("code") == HTTPStatus.GONE:
            raise ExpiredError("the API server has forgotten the version that was asked for")
        raise ApiServerError(
            f"the watch failed: {status.get('message') or 'no reason'}"[:MAX_REASON]
        )
    return found


def _kind(collection: str) -> str:
    return collection.rpartition("/")[2]


def _tree(content: bytes) -> Any:
    """The parsed JSON; None for anything else."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _message(answer: httpx.Response) -> str:
    """The message of its `Status`, which names objects and fields."""
    found = _tree(answer.content)
    message = found.get("message") if isinstance(found, dict) else None
    return str(message or "no reason")[:MAX_REASON]
