"""Drain, cancel, load models and so on from the dashboard: the admin API's calls, for a browser.

Each is a `POST` with JSON and the operators' token as a bearer token. The page adds that header to
its own requests. A page of another site cannot: a browser sends it only after a preflight, which
is not answered, and there is no cookie. Without a token in the settings there are no actions.
"""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, NoReturn

import grpc
from aiohttp import web

from extproc.admin import AdminService
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.tokens import Token

JSON: Final = "application/json"
UTF_8: Final = "utf-8"
STATUS: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    grpc.StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    grpc.StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION: HTTPStatus.CONFLICT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: HTTPStatus.SERVICE_UNAVAILABLE,
}
OFF: Final = (
    "actions are off: they need admin.token_file or COXSWAIN_ADMIN_TOKEN, and no "
    "admin_tls.client_ca_file"
)
WRONG: Final = "this token is not valid for coxswain.v1.Admin"


class _Ended(Exception):  # noqa: N818  # the call is over, and this is its result
    """With the gRPC status and text of an error, or with the first message of a stream."""

    def __init__(self, code: grpc.StatusCode = grpc.StatusCode.OK, text: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _Call:
    """What the admin service's calls use of gRPC's context."""

    async def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        raise _Ended(code, text)

    async def write(self, _: object) -> NoReturn:
        """The page does not follow a stream: it leaves, and asks `/status`."""
        raise _Ended


class Actions:
    """`token` is set before the pages serve; without it, each action is rejected."""

    def __init__(self, service: AdminService) -> None:
        self._service = service
        self.token: Token | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether those who have the token may act."""
        return self.token is not None

    def routes(self) -> list[web.RouteDef]:
        """What to add to the server of the status pages."""
        service = self._service
        calls: dict[str, Callable[[str, Any], Awaitable[object]]] = {
            "check": _do_nothing,
            "drain": lambda name, call: service.Drain(pb.DrainRequest(address=name), call),
            "activate": lambda name, call: service.Activate(pb.ActivateRequest(address=name), call),
            "cancel": lambda id_, call: service.CancelRequest(
                pb.CancelRequestRequest(id=id_), call
            ),
            "load": lambda name, call: service.LoadModel(pb.LoadModelRequest(model=name), call),
            "unload": lambda name, call: service.UnloadModel(
                pb.UnloadModelRequest(model=name), call
            ),
            "pin": lambda name, call: service.LoadModel(
                pb.LoadModelRequest(model=name, pin=True), call
            ),
            "unpin": lambda name, call: service.UnpinModel(pb.UnpinModelRequest(model=name), call),
        }
        return [web.post(f"/actions/{name}", self._handler(call)) for name, call in calls.items()]

    def rejected(self, request: web.Request) -> web.Response | None:
        """The answer to a request without the operators' token; None if it has that."""
        if self.token is None:
            return _error(HTTPStatus.FORBIDDEN, OFF)
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.token.matches(shown.strip()):
            return _error(HTTPStatus.UNAUTHORIZED, WRONG)
        return None

    def _handler(
        self, act: Callable[[str, Any], Awaitable[object]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            if (rejected := self.rejected(request)) is not None:
                return rejected
            target = await _target(request)
            if target is None:
                return _error(HTTPStatus.BAD_REQUEST, 'send JSON: {"target": "..."}')
            try:
                await act(target, _Call())
            except _Ended as ended:
                if ended.code is not grpc.StatusCode.OK:
                    return _error(STATUS.get(ended.code, HTTPStatus.BAD_REQUEST), ended.text)
            return web.json_response({})

        return handle


async def _do_nothing(_target: str, _call: object) -> None:
    """For the page to find out whether its token is valid."""


async def _target(request: web.Request) -> str | None:
    """The endpoint, request or model to act on; None for a body that does not say it."""
    try:
        if request.content_type != JSON or (request.charset or UTF_8).lower() != UTF_8:
            return None
        body = json.loads((await request.read()).decode())
        target = body.get("target") if isinstance(body, dict) else None
        if not isinstance(target, str):
            return None
        target.encode()  # a lone surrogate cannot be said to anybody
    except (ValueError, RecursionError, web.RequestPayloadError):
        return None
    return target


def _error(status: HTTPStatus, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
