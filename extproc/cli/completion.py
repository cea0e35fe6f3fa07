"""What the shell offers for an endpoint or a request id: asked of the picker, soon and silently.

A picker that is down, slow or wants a token that is not there offers nothing, and no word of it
gets between the person and the command line.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterator
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any, Final

import typer

from extproc.cli.admin_client import AdminClient

if TYPE_CHECKING:
    from extproc.pb.coxswain.v1 import admin_pb2

Offer = tuple[str, str]
"""A completion with its description."""
Complete = Callable[[typer.Context, str], list[Offer]]

PATIENCE_S: Final = 0.5
MAX_OFFERS: Final = 500


def _is_active(endpoint: admin_pb2.Endpoint) -> bool:
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    return endpoint.intent == pb.INTENT_ACTIVE


def _endpoints(suits: Callable[[admin_pb2.Endpoint], bool]) -> Complete:
    """Offers those that suit, by name if they have one."""

    async def ask(picker: AdminClient) -> Iterator[Offer]:
        from extproc.pb.coxswain.v1 import admin_pb2 as pb

        request = pb.ListEndpointsRequest(page_size=MAX_OFFERS)
        answer = await picker.ask(picker.admin.ListEndpoints, request)
        suiting = [each for each in answer.endpoints if suits(each) and not each.is_removed]
        return (
            (each.name, each.address) if each.name else (each.address, each.hostname)
            for each in suiting
        )

    return _offers(ask)


def _requests(*, is_queued: bool) -> Complete:
    async def ask(picker: AdminClient) -> Iterator[Offer]:
        from extproc.cli.output import word
        from extproc.pb.coxswain.v1 import admin_pb2 as pb

        states = [pb.REQUEST_STATE_QUEUED] if is_queued else []
        request = pb.ListRequestsRequest(limit=MAX_OFFERS, states=states)
        answer = await picker.ask(picker.admin.ListRequests, request)
        return (
            (
                each.request_id or each.exchange_id,
                each.endpoint or word("RequestState", pb.RequestState.Name(each.state)),
            )
            for each in answer.requests
        )

    return _offers(ask)


def _offers(ask: Callable[[AdminClient], Awaitable[Iterator[Offer]]]) -> Complete:
    def complete(context: typer.Context, incomplete: str) -> list[Offer]:
        import asyncio

        from extproc.cli.rpc_command import connection_of

        async def talk() -> list[Offer]:
            connection = connection_of(_said(context), timeout_s=PATIENCE_S)
            async with asyncio.timeout(PATIENCE_S), AdminClient(connection) as picker:
                return [offer for offer in await ask(picker) if offer[0].startswith(incomplete)]

        with redirect_stderr(io.StringIO()):
            try:
                return asyncio.run(talk())
            except Exception:  # noqa: BLE001  # whatever it is, a shell that completes is no place for it
                return []

    return complete


def _said(context: Any) -> dict[str, Any]:
    """The options of this command and of those before it.

    What was typed wins over variables, and of several the nearest.
    """
    typed: dict[str, Any] = {}
    other: dict[str, Any] = {}
    while context is not None:
        for name, value in context.params.items():
            source = getattr(context.get_parameter_source(name), "name", "")
            if value is not None:
                (typed if source == "COMMANDLINE" else other).setdefault(name, value)
        context = context.parent
    return {**other, **typed}


endpoints = _endpoints(lambda _: True)
added_endpoints = _endpoints(lambda endpoint: "admin" in endpoint.sources)
"""Those that an operator added and can remove."""
active_endpoints = _endpoints(_is_active)
idle_endpoints = _endpoints(lambda endpoint: not _is_active(endpoint))
"""Those that are drained or disabled."""
requests = _requests(is_queued=False)
"""Running, queued or still being read."""
queued_requests = _requests(is_queued=True)
