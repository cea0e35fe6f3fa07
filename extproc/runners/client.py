"""Sends requests to one llama-server; only this module uses httpx.

It speaks to httpx's transport, not to its client: a question is one prepared GET without
cookies, redirects or environment, and the transport costs a quarter less per scrape, which
is what a hundred idle endpoints pay. It also logs no line per question. Every foreign
error becomes a `Failure` value.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import httpx

from extproc.runners.target import EndpointTarget
from extproc.runners.timeouts import Timeouts
from extproc.runners.transport import MAX_CONNECTIONS, RunnerTransport, no_tls
from extproc.security.secret_file import authorization_of
from extproc.transport.descriptors import is_caused_by, own_fault

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_PREPARED = 64
MAX_CONTEXTS = 16
LOST_S = 0.1
"""A timeout during which this process was blocked for longer says nothing about the server."""


def never_blocked(_since: float) -> float:
    """The default for `lost_s`: this process is never blocked."""
    return 0.0


class OwnFaultError(Exception):
    """This process could not send a question: it has run out of what `str(error)` says. It says
    nothing about the server."""


class FailureKind(Enum):
    UNREACHABLE = "unreachable"  # no connection: refused, no route, or timed out
    TIMED_OUT = "timed out"  # connected, but no response in time
    BROKEN = "broken"  # cut off or invalid in the middle of the response
    UNUSABLE = "unusable"  # a response that can never be read: too large, wrong TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete HTTP answer. Both times are readings of the client's clock.

    `is_first_on_connection` hints that another process may be there than the time before.
    """

    status: int
    body: bytes
    began_at: float
    answered_at: float
    is_first_on_connection: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No usable HTTP response. `message` is for operators and contains no received data. With
    `is_machine_on` something at that address has answered or refused."""

    kind: FailureKind
    message: str
    began_at: float
    answered_at: float
    is_timeout: bool = False
    is_machine_on: bool = False


class RunnerClient:
    """Keep-alive connections to one server. Close it with `aclose`.

    Questions may overlap (a stalled /slots does not hold up /health), up to
    `MAX_CONNECTIONS` at once; more wait for `pool_s`.
    """

    def __init__(
        self,
        target: EndpointTarget,
        timeouts: Timeouts,
        clock: Callable[[], float],
        lost_s: Callable[[float], float] = never_blocked,
    ) -> None:
        """`lost_s` says for how many seconds since a moment this process was blocked. An https
        server is verified by the target's CA, or the system's; raises
        `OSError` where its file of them cannot be read."""
        self._target = target
        self._timeouts = timeouts
        self._clock = clock
        self._lost_s = lost_s
        self._transport = RunnerTransport(
            _verified(target.ca_file, target.ca_digest) if target.is_tls else no_tls()
        )
        self._headers = {
            "User-Agent": "coxswain",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        if target.host_name is not None:
            self._headers["Host"] = target.host_name
        if target.api_key is not None:
            self._headers["Authorization"] = authorization_of(target.api_key)
        self._prepared: dict[str, httpx.Request] = {}
        self._streams: list[object] = []

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def ask(self, path: str) -> Answer | Failure:
        """GET `path` (with its query, already quoted).

        Never raises for anything the server or the network does, but `OwnFaultError` for what
        this process or its machine has run out of. A connection that the
        server had closed meanwhile (it closes idle ones, and each after 100 questions) is
        replaced and the question sent once more; the times are those of the last sending. A
        timeout that passed while this process was blocked is no answer: the question is repeated.
        """
        is_reused = bool(self._streams)
        request = self._prepare(path)
        outcome = await self._send(request, path)
        if is_reused and isinstance(outcome, Failure) and outcome.kind is FailureKind.BROKEN:
            outcome = await self._send(request, path)
        while self._is_own_fault(outcome):
            outcome = await self._send(request, path)
        return outcome

    async def post(self, path: str, content: bytes) -> Answer | Failure:
        """POST JSON to `path`, once. Raises what `ask` does."""
        return await self._send(self._request("POST", path, content), path)

    def _is_own_fault(self, outcome: Answer | Failure) -> bool:
        is_timeout = isinstance(outcome, Failure) and outcome.is_timeout
        return is_timeout and self._lost_s(outcome.began_at) > LOST_S

    async def _send(self, request: httpx.Request, path: str) -> Answer | Failure:
        method = request.method
        answer_s = self._timeouts.answer_s(path)
        began_at = self._clock()
        try:
            # The read timeout restarts with each byte, so a dripping response needs this too.
            async with asyncio.timeout(answer_s + self._timeouts.overhead_s):
                response = await self._transport.handle_async_request(request)
                try:
                    body = await _read(response)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if fault := own_fault(error):
                raise OwnFaultError(fault) from None
            is_timeout = isinstance(error, httpx.ConnectTimeout)
            kind, message = _connect_failure(error)
            is_on = kind is FailureKind.UNUSABLE or is_caused_by(error, ConnectionRefusedError)
            return self._failure(
                kind, message, began_at, is_timeout=is_timeout, is_machine_on=is_on
            )
        except (httpx.TimeoutException, TimeoutError):
            message = f"{method} {_shown(path)} was not answered within {answer_s:g} s"
            return self._failure(FailureKind.TIMED_OUT, message, began_at, is_timeout=True)
        except (httpx.TransportError, ssl.SSLError) as error:
            # With TLS 1.3 a client learns only after the handshake that its certificate is missing.
            message = f"{method} {_shown(path)} was cut off ({type(error).__name__})"
            is_on = is_caused_by(error, ConnectionResetError, httpx.RemoteProtocolError)
            return self._failure(FailureKind.BROKEN, message, began_at, is_machine_on=is_on)
        if body is None:
            message = (
                f"the answer to {method} {_shown(path)} is larger than {MAX_BODY_BYTES} bytes "
                "or is encoded"
            )
            return self._failure(FailureKind.UNUSABLE, message, began_at, is_machine_on=True)
        return Answer(
            status=response.status_code,
            body=body,
            began_at=began_at,
            answered_at=self._clock(),
            is_first_on_connection=self._is_first(response.extensions.get("network_stream")),
        )

    def _failure(
        self,
        kind: FailureKind,
        message: str,
        began_at: float,
        *,
        is_timeout: bool = False,
        is_machine_on: bool = False,
    ) -> Failure:
        return Failure(
            kind=kind,
            message=message,
            began_at=began_at,
            answered_at=self._clock(),
            is_timeout=is_timeout,
            is_machine_on=is_machine_on,
        )

    def _prepare(self, path: str) -> httpx.Request:
        request = self._prepared.get(path)
        if request is None:
            request = self._request("GET", path)
            if len(self._prepared) >= MAX_PREPARED:
                self._prepared.clear()
            self._prepared[path] = request
        return request

    def _request(self, method: str, path: str, content: bytes | None = None) -> httpx.Request:
        headers = self._headers
        if content is not None:
            headers = {**headers, "Content-Type": "application/json"}
        url = self._target.base_url + path
        request = httpx.Request(method, url, headers=headers, content=content)
        request.extensions["timeout"] = self._timeouts.steps(path)
        if self._target.is_tls and self._target.host_name is not None:
            request.extensions["sni_hostname"] = self._target.host_name
        return request

    def _is_first(self, stream: object) -> bool:
        if any(stream is known for known in self._streams):
            return False
        self._streams = [*self._streams[1 - MAX_CONNECTIONS :], stream]
        return True


async def _read(response: httpx.Response) -> bytes | None:
    """The body, or None if it is too large or compressed although that was not accepted."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return None
    chunks: list[bytes] = []
    total = 0
    async for chunk in response.stream:  # type: ignore[union-attr]  # async: our transport is
        total += len(chunk)
        if total > MAX_BODY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _connect_failure(error: Exception) -> tuple[FailureKind, str]:
    tls_error = _tls_error(error)
    kind = FailureKind.UNREACHABLE if tls_error is None else FailureKind.UNUSABLE
    if isinstance(error, httpx.ConnectTimeout):
        return kind, "connecting timed out"
    if tls_error is not None:
        return kind, f"the TLS handshake failed: {tls_error.reason or type(tls_error).__name__}"
    return kind, "the connection was refused, or the host is unreachable"


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _shown(path: str) -> str:
    """The path without its query: a model's name may be long and is the server's business."""
    return path.partition("?")[0]


@lru_cache(maxsize=MAX_CONTEXTS)
def _verified(ca_file: str | None, _digest: str) -> ssl.SSLContext:
    """Cached: reading CA files is slow, and many servers share them."""
    return ssl.create_default_context(cafile=ca_file)
