"""Requires a valid token: operators' and agents' tokens, each for its own service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import grpc

from extproc.security.tokens import Token
from extproc.transport.health import SERVICE as HEALTH

AGENTS: Final = frozenset({"coxswain.v1.Agents", "coxswain.v1.Keepers"})
SCHEME: Final = "bearer "
MISSING: Final = (
    "a bearer token is required: send the header `authorization: Bearer TOKEN` "
    "(COXSWAIN_TOKEN or --token-file for the coxswain command)"
)
WRONG: Final = "this bearer token is not valid for {service}"


class Guard(grpc.aio.ServerInterceptor):
    """Checks each call before its first message is read. Health stays open, for probes."""

    def __init__(self, admin: Token | None = None, agents: Token | None = None) -> None:
        self._admin = admin
        self._agents = agents or admin

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Answer UNAUTHENTICATED unless the call's token fits its service."""
        service = handler_call_details.method.rpartition("/")[0].lstrip("/")
        token = self._token_for(service)
        if token is not None:
            shown = _shown(handler_call_details)
            if not token.matches(shown):
                return _rejecting(MISSING if not shown else WRONG.format(service=service))
        return await continuation(handler_call_details)

    def _token_for(self, service: str) -> Token | None:
        """The token that allows a call; None if none is needed. Reflection and all services except
        the agents' and keepers' need the operators' token."""
        if service == HEALTH:
            return None
        return self._agents if service in AGENTS else self._admin


def _shown(details: grpc.HandlerCallDetails) -> str:
    metadata: Any = details.invocation_metadata
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            if value[: len(SCHEME)].lower() == SCHEME:
                return value[len(SCHEME) :].strip()
            return ""
    return ""


def _rejecting(text: str) -> grpc.RpcMethodHandler[Any, Any]:
    async def reject(_: object, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, text)

    # The call is over before a message is read, so the kind of the real one does not matter.
    return grpc.stream_stream_rpc_method_handler(reject)
