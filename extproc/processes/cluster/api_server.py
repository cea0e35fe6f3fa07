"""Reads and replaces objects of a Kubernetes API server: the few calls that the engine needs.

Token and CA are those that Kubernetes mounts for the pod's service account. The token is read for
each request, as it is renewed in place.
"""

import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx

from extproc.processes.cluster.engine import EngineError
from extproc.security.secret_file import SecretFileError, is_header_value, read_secret

MAX_REASON: Final = 200

Object = dict[str, Any]


class ConflictError(Exception):
    """Another one has replaced, created or deleted the object since it was read."""


class ApiServer:
    """One API server. `folder` holds `token` and `ca.crt`; without `ca.crt` the system's CAs count.
    Each call ends within `timeout_s`. Belongs to one event loop."""

    def __init__(self, url: str, folder: Path, timeout_s: float) -> None:
        """Raises `OSError` and `ssl.SSLError` for a CA file that cannot be used."""
        ca = folder / "ca.crt"
        context = ssl.create_default_context(cafile=str(ca) if ca.exists() else None)
        self._token = folder / "token"
        self._client = httpx.AsyncClient(
            base_url=url, verify=context, timeout=timeout_s, trust_env=False
        )

    async def read(self, path: str) -> Object | None:
        """The object, or None if there is none. Raises `EngineError`."""
        answer = await self._ask("GET", path)
        return None if answer.status_code == HTTPStatus.NOT_FOUND else _object(answer)

    async def create(self, collection: str, body: Object) -> Object:
        """Create an object; returns it as it is now. Raises `ConflictError` and `EngineError`."""
        return _object(await self._ask("POST", collection, body))

    async def replace(self, path: str, body: Object) -> Object:
        """Replace an object by `body`, which has the `resourceVersion` that was read; returns it as
        it is now. Raises `ConflictError` and `EngineError`."""
        answer = await self._ask("PUT", path, body)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise ConflictError
        return _object(answer)

    async def aclose(self) -> None:
        """End all connections."""
        await self._client.aclose()

    async def _ask(self, method: str, path: str, body: Object | None = None) -> httpx.Response:
        headers = {"accept": "application/json"}
        token = self._read_token()
        if token:
            headers["authorization"] = f"Bearer {token}"
        try:
            return await self._client.request(method, path, json=body, headers=headers)
        except httpx.TimeoutException:
            raise EngineError("no answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            text = str(error).partition("\n")[0] or type(error).__name__
            raise EngineError(text[:MAX_REASON]) from None
        except AttributeError:  # anyio's over uvloop, of a connection that was reset as it was made
            raise EngineError("the connection was reset") from None

    def _read_token(self) -> str:
        """Empty where there is no such file."""
        if not self._token.exists():
            return ""
        try:
            token = read_secret(self._token)
        except SecretFileError as error:
            raise EngineError(str(error)) from None
        if token and not is_header_value(token):
            raise EngineError(f"{self._token} holds no token")
        return token


def _object(answer: httpx.Response) -> Object:
    status = answer.status_code
    if status == HTTPStatus.CONFLICT:
        raise ConflictError
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise EngineError(
            f"the API server rejects the service account ({status}): it needs the role of "
            "deploy/kubernetes/cluster-role.yaml"
        )
    if status not in (HTTPStatus.OK, HTTPStatus.CREATED):
        raise EngineError(f"the API server answered {status}: {_message(answer)}")
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise EngineError("the API server answered something that is no object")
    return found


def _message(answer: httpx.Response) -> str:
    """The message of its `Status`, which names objects and fields."""
    try:
        found = answer.json()
    except ValueError:
        return "no reason"
    message = found.get("message") if isinstance(found, dict) else None
    return str(message or "no reason")[:MAX_REASON]
