"""The client of the batch API: its address, its key, its errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, ParamSpec

import typer

from extproc.cli.admin_client import ExitCode, PickerError, read_token
from extproc.cli.interrupt import run_interruptible
from extproc.security.foreign_text import escaped

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

P = ParamSpec("P")

TIMEOUT_S: Final = 60.0
"""Of each part that is read or written."""
EXITS: Final = {401: ExitCode.UNAUTHENTICATED, 404: ExitCode.NOT_FOUND, 400: ExitCode.USAGE}


def answering(command: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Let typer run a coroutine; a `PickerError` is one line and the exit status."""

    @wraps(command)
    def run(*args: P.args, **named: P.kwargs) -> None:
        try:
            run_interruptible(lambda: command(*args, **named))
        except PickerError as error:
            print(escaped(f"coxswain: {error}"), file=sys.stderr)
            raise typer.Exit(error.exit) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return run


class BatchClient:
    """Use it as `async with`. Every call raises `PickerError`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    def of(cls, url: str, api_key_file: Path | None) -> BatchClient:
        """`url` is Envoy's or the batch process's. Raises `PickerError`."""
        import httpx

        key = os.environ.get("COXSWAIN_API_KEY", "")
        if api_key_file is not None:
            key = read_token(api_key_file)
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            parsed = httpx.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise PickerError(ExitCode.USAGE, "--url: write http://HOST:PORT")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return cls(httpx.AsyncClient(base_url=parsed, headers=headers, timeout=TIMEOUT_S))

    async def __aenter__(self) -> BatchClient:
        return self

    async def __aexit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def submit(self, file: Path, window: str) -> dict[str, Any]:
        """Send a file and make a batch of it; the batch."""
        endpoint = _endpoint(file)
        with file.open("rb") as stream:
            form = {"file": (file.name, stream, "application/jsonl")}
            stored = await self._ask("POST", "/v1/files", files=form, data={"purpose": "batch"})
        body = {
            "input_file_id": stored["id"],
            "endpoint": endpoint,
            "completion_window": window,
        }
        return await self._ask("POST", "/v1/batches", json=body)

    async def batch(self, id_: str) -> dict[str, Any]:
        return await self._ask("GET", f"/v1/batches/{_segment(id_)}")

    async def batches(self) -> dict[str, Any]:
        """The newest batches, as a page of the API."""
        return await self._ask("GET", "/v1/batches", params={"limit": "100"})

    async def cancel(self, id_: str) -> dict[str, Any]:
        return await self._ask("POST", f"/v1/batches/{_segment(id_)}/cancel")

    async def copy(self, file: str, target: BinaryIO) -> None:
        """Write the content of a file."""
        import httpx

        path = f"/v1/files/{file}/content"
        try:
            async with self._client.stream("GET", path) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    raise self._error(response)
                async for chunk in response.aiter_bytes():
                    target.write(chunk)
                target.flush()
        except httpx.TransportError:
            raise self._unreachable() from None

    async def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        import httpx

        try:
            response = await self._client.request(method, path, **more)
        except httpx.TransportError:
            raise self._unreachable() from None
        if response.status_code != httpx.codes.OK:
            raise self._error(response)
        try:
            found: dict[str, Any] = response.json()
        except ValueError:
            raise self._unreachable() from None
        return found

    def _unreachable(self) -> PickerError:
        return PickerError(
            ExitCode.UNREACHABLE,
            f"no batches are served at {self._client.base_url}: check that `coxswain batch run` "
            "and Envoy run, or give their address with --url or COXSWAIN_URL",
        )

    def _error(self, response: httpx.Response) -> PickerError:
        try:
            error = response.json()["error"]
            message, code = str(error["message"]), error.get("code")
        except (ValueError, LookupError, TypeError, AttributeError):
            return self._unreachable()
        if code == "unknown-path":
            message = "Envoy does not know the batches: set envoy.batches and print its "
            message += "configuration again"
        exit_ = EXITS.get(response.status_code, ExitCode.REJECTED)
        return PickerError(exit_, message)


def _segment(id_: str) -> str:
    if not id_.isascii() or not id_.replace("_", "").replace("-", "").isalnum():
        raise PickerError(ExitCode.USAGE, "this is no id of a batch")
    return id_


def _endpoint(file: Path) -> str:
    """The url of the first line of a file: a batch has one for all."""
    import json

    try:
        with file.open("rb") as stream:
            line = next((text for text in stream if text.strip()), b"")
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise PickerError(ExitCode.USAGE, f"{file}: {reason}") from None
    try:
        found = json.loads(line)["url"]
    except (ValueError, LookupError, TypeError):
        found = None
    if not isinstance(found, str):
        raise PickerError(ExitCode.USAGE, f"{file}: its first line is no request with a url")
    return found
