"""The calls about requests: list them, watch a queued one, end one."""

import asyncio
import logging
import time
from collections.abc import Sequence
from math import inf
from typing import Final

from extproc.admin import arguments
from extproc.admin.call_errors import Context, at_limit, maps_errors, not_found, not_now, quoted
from extproc.admin.dependencies import AdminCalls, AdminDependencies
from extproc.admin.messages import STATE, request_message
from extproc.core.exchange_registry import ExchangeSnapshot, ExchangeState, KnownExchange
from extproc.core.queue.ticket import Ticket
from extproc.pb.coxswain.v1 import admin_pb2 as pb

LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000
UPDATE_S: Final = 0.05
"""Seconds between two updates of a watched request."""
LONGEST_SILENCE_S: Final = 1.0
MAX_WATCHERS: Final = 500
MAX_SHARE: Final = 0.1
"""The share of the event loop's time for all watches of the queue."""
AT_ONCE: Final = 200
"""Queue positions that are computed before other tasks run again."""
MOST_SORTED: Final = 1000
"""In a longer queue this many of the oldest are sorted by their positions."""
WITH_SLOT: Final = (ExchangeState.RUNNING, ExchangeState.RESPONDING)
NOT_PASSING: Final = (ExchangeState.READING, ExchangeState.QUEUED, *WITH_SLOT)

log = logging.getLogger("coxswain.admin")


class RequestCalls(AdminCalls):
    """Running and queued requests, without bodies and without headers except the request id."""

    def __init__(self, dependencies: AdminDependencies) -> None:
        super().__init__(dependencies)
        self._watchers = 0

    @maps_errors
    async def ListRequests(  # noqa: N802  # gRPC names it
        self, request: pb.ListRequestsRequest, _: Context
    ) -> pb.ListRequestsResponse:
        limit = arguments.read_limit(request.limit, "limit", LIMIT, MAX_LIMIT)
        wanted = set(request.states) or {STATE[state] for state in NOT_PASSING}
        address = None
        if request.endpoint:
            address = arguments.find_endpoint(self._dispatcher.fleet, request.endpoint).address
        pool = arguments.find_pool(self._dispatcher.view.pools, request.pool)
        now = self._dependencies.clock()
        snapshots = [exchange.snapshot(now) for exchange in self._dependencies.registry]
        matching = [
            snapshot
            for snapshot in snapshots
            if STATE[snapshot.state] in wanted
            and (address is None or snapshot.endpoint == address)
            and request.client in ("", snapshot.client)
            and request.model in ("", snapshot.model)
            and pool in ("", snapshot.pool)
        ]
        matching.sort(key=_order)
        response = pb.ListRequestsResponse(
            total_running=sum(snapshot.state in WITH_SLOT for snapshot in snapshots),
            total_queued=len(self._dispatcher.queue),
            total=len(matching),
        )
        first = [snapshot for snapshot in matching if snapshot.ticket is None][:limit]
        room = limit - len(first)
        queued = [snapshot for snapshot in matching if snapshot.ticket is not None]
        messages = await self._requests(queued[: max(room, MOST_SORTED)]) if room else []
        messages.sort(key=lambda message: message.queue_position or inf)
        response.requests.extend(await self._requests(first))
        response.requests.extend(messages[:room])
        return response

    @maps_errors
    async def WatchQueue(  # noqa: N802
        self, request: pb.WatchQueueRequest, context: Context
    ) -> None:
        exchange = self._find(request.id, is_queued_first=True)
        if exchange.snapshot(self._dependencies.clock()).state is ExchangeState.READING:
            raise not_now(
                f"request {quoted(request.id)} has no queue position yet: its body is still "
                "arriving"
            )
        if self._watchers >= MAX_WATCHERS:
            raise at_limit(
                f"{MAX_WATCHERS} requests are watched, which is the limit; end a watch, or use "
                "ListRequests"
            )
        self._watchers += 1
        try:
            await self._send_positions(exchange, context)
        finally:
            self._watchers -= 1

    @maps_errors
    async def CancelRequest(  # noqa: N802
        self, request: pb.CancelRequestRequest, _: Context
    ) -> pb.CancelRequestResponse:
        exchange = self._find(request.id, is_queued_first=False)
        now = self._dependencies.clock()
        snapshot = exchange.snapshot(now)
        if snapshot.state is ExchangeState.OVER:
            raise not_now(f"request {quoted(request.id)} is over already")
        (message,) = await self._requests([snapshot])
        exchange.cancel(now)
        log.info(
            "an operator cancelled exchange %s (%s)", snapshot.exchange_id, snapshot.state.value
        )
        return pb.CancelRequestResponse(request=message)

    def _find(self, id_: str, *, is_queued_first: bool) -> KnownExchange:
        """The exchange with this id; raises `CallError` for none or several."""
        arguments.checked(id_, "id", arguments.MAX_ID_CHARS)
        found = self._dependencies.registry.find(id_, self._dependencies.clock())
        if is_queued_first and len(found) > 1:
            queued = [entry for entry in found if entry[1].state is ExchangeState.QUEUED]
            found = queued or found[:1]
        if not found:
            raise not_found(
                f"no request {quoted(id_)} is running or queued here: it has ended, or it came "
                "through another picker; `coxswain requests` lists the current ones"
            )
        if len(found) > 1:
            raise not_now(_ambiguous(id_, [snapshot for _, snapshot in found]))
        return found[0][0]

    async def _send_positions(self, exchange: KnownExchange, context: Context) -> None:
        last: pb.WatchQueueResponse | None = None
        last_at = 0.0
        while True:
            now = self._dependencies.clock()
            began_s = time.thread_time()  # time during which the machine stalls does not count
            message = self._position(exchange.snapshot(now))
            cost_s = time.thread_time() - began_s
            is_newer = (
                last is None
                or (last.state, last.queue_position, last.queued)
                != (message.state, message.queue_position, message.queued)
                or now - last_at >= LONGEST_SILENCE_S
            )
            if is_newer:
                await context.write(message)
                last, last_at = message, now
            if message.state != pb.WatchQueueResponse.STATE_QUEUED:
                return
            await asyncio.sleep(max(UPDATE_S, cost_s * self._watchers / MAX_SHARE))

    def _position(self, snapshot: ExchangeSnapshot) -> pb.WatchQueueResponse:
        message = pb.WatchQueueResponse(
            exchange_id=snapshot.exchange_id, waited_s=max(0.0, snapshot.waited_s)
        )
        if snapshot.ticket is not None:
            now = self._dependencies.clock()
            position = self._dispatcher.view.position_of(snapshot.ticket, now)
            message.note = self._wait_note(snapshot.ticket, now)
            message.state = pb.WatchQueueResponse.STATE_QUEUED
            message.queue_position = position.position
            message.queued = position.queued
            if position.expected_s is not None:
                message.expected_s = position.expected_s
        elif snapshot.endpoint is not None:
            message.state = pb.WatchQueueResponse.STATE_SERVED
            message.endpoint = str(snapshot.endpoint)
            message.endpoint_name = snapshot.endpoint_name
        else:
            message.state = pb.WatchQueueResponse.STATE_GONE
        return message

    def _wait_note(self, ticket: Ticket, now: float) -> str:
        return self._dispatcher.view.note_of(ticket, now)

    async def _requests(self, snapshots: Sequence[ExchangeSnapshot]) -> list[pb.Request]:
        """As messages. Other tasks run between some of them; a request that leaves the queue
        meanwhile is shown without a position."""
        messages: list[pb.Request] = []
        for start in range(0, len(snapshots), AT_ONCE):
            if start:
                await asyncio.sleep(0)
            part = snapshots[start : start + AT_ONCE]
            tickets = [each.ticket for each in part if each.ticket and each.ticket.is_waiting]
            if not tickets:
                messages += map(request_message, part)
                continue
            now = self._dependencies.clock()
            positions = self._dispatcher.view.positions_of(tickets, now)
            found = {
                ticket.id: position for ticket, position in zip(tickets, positions, strict=True)
            }
            waits = self._dispatcher.view.waits()
            for each in part:
                if each.ticket is not None and each.ticket.id in found:
                    reason = waits.reason_of(each.ticket).value
                    note = self._wait_note(each.ticket, now)
                    messages.append(request_message(each, found[each.ticket.id], reason, note))
                else:
                    messages.append(request_message(each))
        return messages


def _order(snapshot: ExchangeSnapshot) -> tuple[bool, float]:
    """Exchanges that are not queued, oldest first, then the queue, oldest first: of those with
    equal places."""
    if snapshot.ticket is None:
        return (False, -snapshot.age_s)
    return (True, snapshot.ticket.id)


def _ambiguous(id_: str, snapshots: Sequence[ExchangeSnapshot]) -> str:
    some = ", ".join(snapshot.exchange_id for snapshot in snapshots[:5])
    return (
        f"{len(snapshots)} requests have the id {quoted(id_)}: give the exchange id of one ({some})"
    )
