"""The calls about what was: ended requests, where the time of one went, and events."""

import math
from dataclasses import asdict
from typing import Final

from extproc.admin import arguments
from extproc.admin.call_errors import Context, invalid, maps_errors, not_found, not_now, quoted
from extproc.admin.dependencies import AdminCalls, RecordsAccess
from extproc.core.exchange_record import Outcome
from extproc.core.exchange_registry import ExchangeState
from extproc.core.rejection import Reason
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.records.request_record import RequestRecord
from extproc.records.selection import Selection
from extproc.records.story import beside_of, cause_of, end_of, parts_of, summary_of

LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000
MAX_SAME_ID: Final = 20
OUTCOMES: Final = {outcome.value for outcome in Outcome} | {reason.value for reason in Reason}


class RecordCalls(AdminCalls):
    """Nothing here has a body, a prompt, a key or a header except the request id."""

    @maps_errors
    async def ListRecords(  # noqa: N802  # gRPC names it
        self, request: pb.ListRecordsRequest, _: Context
    ) -> pb.ListRecordsResponse:
        limit = arguments.read_limit(request.limit, "limit", LIMIT, MAX_LIMIT)
        _check_outcome(request.outcome)
        records = self._records()
        last = records.total
        found, total = await self._select(records, request, limit, request.pool)
        return pb.ListRecordsResponse(
            records=map(_message, found), total=total, last=last, instance=records.instance
        )

    @maps_errors
    async def ShowRequest(  # noqa: N802
        self, request: pb.ShowRequestRequest, _: Context
    ) -> pb.ShowRequestResponse:
        id_ = arguments.checked(request.id, "id", arguments.MAX_ID_CHARS)
        records = self._records()
        current = [
            records.live(exchange, snapshot)
            for exchange, snapshot in self._dependencies.registry.find(
                id_, self._dependencies.clock()
            )
            if snapshot.state not in (ExchangeState.PASSING, ExchangeState.OVER)
        ]
        try:
            found = [*current, *await records.find(id_)]
            beside = await records.beside(found[0]) if found else None
        except OSError as error:
            raise not_now(_unreadable(error)) from None
        if not found:
            raise not_found(
                f"no request {quoted(id_)} is running, queued or kept: it took no slot, it came "
                "through another picker, or it ended too long ago (records.size, records.path)"
            )
        record = found[0]
        parts = parts_of(record)
        message = pb.ShowRequestResponse(
            record=_message(record),
            parts=[pb.ShowRequestResponse.Part(**asdict(part)) for part in parts],
            summary=summary_of(record, parts),
            cause=cause_of(record),
            beside=beside_of(record, beside),
            same_id=[each.exchange_id for each in found[1 : 1 + MAX_SAME_ID]],
        )
        if beside is not None and (beside.count or beside.all_known):
            message.others, message.others_most = beside.count, beside.most
            message.others_mean = beside.mean
        return message

    @maps_errors
    async def ListEvents(  # noqa: N802
        self, request: pb.ListEventsRequest, _: Context
    ) -> pb.ListEventsResponse:
        limit = arguments.read_limit(request.limit, "limit", LIMIT, MAX_LIMIT)
        if request.outcome:
            return await self._ends(request, limit)
        events = self._dependencies.events
        if events is None:
            raise not_now("this picker keeps no events")
        since_s = _since(request.since_s) or math.inf
        after = request.after if request.instance == events.instance else 0
        offset_s = events.unix_offset_s()
        oldest = self._dependencies.clock() - since_s
        found = [
            pb.FleetEvent(
                number=event.id,
                at=event.at + offset_s,
                kind=event.kind,
                text=event.text,
                endpoint=event.address,
                endpoint_name=event.name,
                model=event.model,
                client=event.client,
            )
            for event in events.after(after)
            if event.at >= oldest
            and request.endpoint in ("", event.address, event.name)
            and request.model in ("", event.model)
            and request.client in ("", event.client)
            and request.kind in ("", event.kind)
        ]
        return pb.ListEventsResponse(
            events=found[-limit:], last=events.last, instance=events.instance
        )

    async def _ends(self, request: pb.ListEventsRequest, limit: int) -> pb.ListEventsResponse:
        """The ends of requests with an outcome, as events."""
        _check_outcome(request.outcome)
        if request.kind:
            raise invalid("outcome and kind: only one of them; the kind of an end is its outcome")
        records = self._records()
        last = records.total
        found, _ = await self._select(records, request, limit)
        events = [
            pb.FleetEvent(
                at=record.ended_at,
                kind=record.word,
                text=end_of(record),
                endpoint=record.endpoint,
                endpoint_name=record.endpoint_name,
                model=record.model,
                client=record.client,
                exchange_id=record.exchange_id,
            )
            for record in found
        ]
        return pb.ListEventsResponse(events=events, last=last, instance=records.instance)

    async def _select(
        self,
        records: RecordsAccess,
        request: pb.ListRecordsRequest | pb.ListEventsRequest,
        limit: int,
        pool: str = "",
    ) -> tuple[list[RequestRecord], int]:
        """The newest `limit` that a request selects, and how many there are."""
        selection = Selection(
            client=request.client,
            model=request.model,
            endpoint=request.endpoint,
            outcome=request.outcome,
            pool=pool,
        )
        after = request.after if request.instance == records.instance else 0
        try:
            return await records.select(selection, _since(request.since_s), limit, after)
        except OSError as error:
            raise not_now(_unreadable(error)) from None

    def _records(self) -> RecordsAccess:
        records = self._dependencies.records
        if records is None:
            raise not_now("this picker keeps no ended requests")
        return records


def _check_outcome(outcome: str) -> None:
    if outcome and outcome not in OUTCOMES:
        words = ", ".join(sorted(OUTCOMES))
        raise invalid(f"outcome: {quoted(outcome)} is none; there are {words}")


def _since(since_s: float) -> float:
    if not 0.0 <= since_s < math.inf:
        raise invalid("since_s must be a number of seconds, 0 or more")
    return since_s


def _unreadable(error: OSError) -> str:
    return f"the file of ended requests cannot be read: {error.strerror or error}"


def _message(record: RequestRecord) -> pb.RequestRecord:
    values = {name: value for name, value in asdict(record).items() if value is not None}
    return pb.RequestRecord(**values)
