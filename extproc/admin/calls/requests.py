"""The calls about requests: list them, watch a queued one, end one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import grpc

from extproc.admin import arguments as names
from extproc.admin.arrival_positions import ArrivalPositions
from extproc.admin.call_errors import Refused, courteous, not_found, not_now, quoted
from extproc.admin.dependencies import AdminDependencies
from extproc.admin.messages import STATE, request_message
from extproc.core.scheduler.exchange_registry import ExchangeSnapshot, ExchangeState, KnownExchange
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminServicer

LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000
LOOK_S: Final = 0.05
"""Seconds between two updates of a watched request."""
SIGN_OF_LIFE_S: Final = 1.0
MAX_WATCHERS: Final = 500
MAX_SHARE: Final = 0.1
"""The share of the event loop's time for all watches of the queue."""
SLOTTED: Final = (ExchangeState.RUNNING, ExchangeState.ANSWERING)
ALIVE: Final = (ExchangeState.READING, ExchangeState.WAITING, *SLOTTED)

log = logging.getLogger("coxswain.admin")

Context = grpc.aio.ServicerContext[Any, Any]


class RequestCalls(AdminServicer):
    """Running and queued requests, without bodies and without headers except the request id."""

    def __init__(self, dependencies: AdminDependencies) -> None:
        self._dependencies = dependencies
        self._dispatcher = dependencies.dispatcher
        self._places = ArrivalPositions(dependencies.dispatcher, dependencies.clock)
        self._watchers = 0

    @courteous
    async def ListRequests(  # noqa: N802  # gRPC names it
        self, request: pb.ListRequestsRequest, _: Context
    ) -> pb.ListRequestsResponse:
        limit = names.read_limit(request.limit, "limit", LIMIT, MAX_LIMIT)
        wanted = set(request.states) or {STATE[state] for state in ALIVE}
        address = None
        if request.endpoint:
            address = names.find_endpoint(self._dispatcher.fleet, request.endpoint).address
        now = self._dependencies.clock()
        sights = [exchange.snapshot(now) for exchange in self._dependencies.registry]
        matching = [
            sight
            for sight in sights
            if STATE[sight.state] in wanted and (address is None or sight.endpoint == address)
        ]
        matching.sort(key=self._order)
        return pb.ListRequestsResponse(
            requests=[self._request(sight) for sight in matching[:limit]],
            total_running=sum(sight.state in SLOTTED for sight in sights),
            total_waiting=len(self._dispatcher.queue),
            total_matching=len(matching),
        )

    @courteous
    async def WatchQueue(  # noqa: N802
        self, request: pb.WatchQueueRequest, context: Context
    ) -> None:
        exchange = self._find(request.id, is_waiting_first=True)
        if exchange.snapshot(self._dependencies.clock()).state is ExchangeState.READING:
            raise not_now(
                f"request {quoted(request.id)} has no queue position yet: its body is still "
                "arriving"
            )
        if self._watchers >= MAX_WATCHERS:
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{MAX_WATCHERS} requests are watched, which is the limit; end a watch, or use "
                "ListRequests",
            )
        self._watchers += 1
        try:
            await self._tell_place(exchange, context)
        finally:
            self._watchers -= 1

    @courteous
    async def CancelRequest(  # noqa: N802
        self, request: pb.CancelRequestRequest, _: Context
    ) -> pb.CancelRequestResponse:
        exchange = self._find(request.id, is_waiting_first=False)
        now = self._dependencies.clock()
        sight = exchange.snapshot(now)
        if sight.state is ExchangeState.OVER:
            raise not_now(f"request {quoted(request.id)} is over already")
        message = self._request(sight)
        await exchange.cancel(now)
        log.info("an operator cancelled exchange %s (%s)", sight.exchange_id, sight.state.value)
        return pb.CancelRequestResponse(request=message)

    def _find(self, id_: str, *, is_waiting_first: bool) -> KnownExchange:
        """The exchange with this id; raises `Refused` for none or several."""
        names.checked(id_, "id", names.MAX_ID_CHARS)
        found = self._dependencies.registry.find(id_, self._dependencies.clock())
        if is_waiting_first and len(found) > 1:
            waiting = [entry for entry in found if entry[1].state is ExchangeState.WAITING]
            found = waiting or found[:1]
        if not found:
            raise not_found(
                f"no request {quoted(id_)} is running or queued here: it has ended, or it came "
                "through another picker; `coxswain requests` lists the current ones"
            )
        if len(found) > 1:
            raise not_now(_ambiguous(id_, [sight for _, sight in found]))
        return found[0][0]

    async def _tell_place(self, exchange: KnownExchange, context: Context) -> None:
        told: pb.WatchQueueResponse | None = None
        told_at = 0.0
        while True:
            now = self._dependencies.clock()
            began_s = time.thread_time()  # time during which the machine stalls does not count
            message = self._place(exchange.snapshot(now))
            cost_s = time.thread_time() - began_s
            is_news = (
                told is None
                or (told.state, told.position, told.of)
                != (message.state, message.position, message.of)
                or now - told_at >= SIGN_OF_LIFE_S
            )
            if is_news:
                await context.write(message)
                told, told_at = message, now
            if message.state != pb.WatchQueueResponse.STATE_WAITING:
                return
            await asyncio.sleep(max(LOOK_S, cost_s * self._watchers / MAX_SHARE))

    def _place(self, sight: ExchangeSnapshot) -> pb.WatchQueueResponse:
        message = pb.WatchQueueResponse(
            exchange_id=sight.exchange_id, waited_s=max(0.0, sight.waited_s)
        )
        if sight.ticket is not None:
            place = self._dispatcher.position_of(sight.ticket, self._dependencies.clock())
            message.state = pb.WatchQueueResponse.STATE_WAITING
            message.position = place.position
            message.of = place.of
            if place.expected_s is not None:
                message.expected_s = place.expected_s
        elif sight.endpoint is not None:
            message.state = pb.WatchQueueResponse.STATE_SERVED
            message.endpoint = str(sight.endpoint)
        else:
            message.state = pb.WatchQueueResponse.STATE_GONE
        return message

    def _request(self, sight: ExchangeSnapshot) -> pb.Request:
        if sight.ticket is None:
            return request_message(sight)
        position = self._places.position(sight.ticket.id) or len(self._dispatcher.queue)
        return request_message(sight, position, self._dispatcher.expected_s(position))

    def _order(self, sight: ExchangeSnapshot) -> tuple[bool, float]:
        """Running exchanges, oldest first, then the queue."""
        if sight.ticket is None:
            return (False, -sight.age_s)
        return (True, self._places.position(sight.ticket.id) or len(self._dispatcher.queue))


def _ambiguous(id_: str, sights: Sequence[ExchangeSnapshot]) -> str:
    some = ", ".join(sight.exchange_id for sight in sights[:5])
    return f"{len(sights)} requests have the id {quoted(id_)}: give the exchange id of one ({some})"
