"""Current and ended requests as plain values: no prompts, no keys, no request ids of clients."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.exchange_registry import (
    ExchangeRegistry,
    ExchangeSnapshot,
    KnownExchange,
)
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.dispatcher import Dispatcher

MAX_LISTED: Final = 50
"""Of the running, of the queued and of the ended requests, each."""


def requests_json(
    dispatcher: Dispatcher,
    registry: ExchangeRegistry,
    ended: Iterable[ExchangeRecord],
    now: float,
    endpoint: Address | None = None,
) -> dict[str, Any]:
    """The requests that take a slot: up to `MAX_LISTED` running and queued ones, oldest first, and
    of `ended`, which are newest first. With `endpoint`, those on it, and none of the queue.
    O(exchanges); only those in the lists cost more than two attributes."""
    running = (
        exchange
        for exchange in registry
        if exchange.lease is not None and endpoint in (None, exchange.lease.address)
    )
    queued = (each for each in registry if _is_queued(each) and endpoint is None)
    over = (record for record in ended if endpoint in (None, record.endpoint))
    return {
        "running": [_request(each) for each in _snapshots(running, now)],
        "queued": _queued(dispatcher, _snapshots(queued, now), now),
        "ended": [_ended(record, now) for record in islice(over, MAX_LISTED)],
    }


def _is_queued(exchange: KnownExchange) -> bool:
    return exchange.ticket is not None and exchange.ticket.is_waiting


def _snapshots(exchanges: Iterable[KnownExchange], now: float) -> list[ExchangeSnapshot]:
    return [exchange.snapshot(now) for exchange in islice(exchanges, MAX_LISTED)]


def _request(snapshot: ExchangeSnapshot) -> dict[str, Any]:
    return {
        "id": snapshot.exchange_id,
        "state": snapshot.state.value,
        "model": snapshot.model,
        "criticality": snapshot.criticality,
        "objective": snapshot.objective,
        "client": snapshot.client,
        **({"pool": snapshot.pool} if snapshot.pool else {}),
        "endpoint": "" if snapshot.endpoint is None else str(snapshot.endpoint),
        "endpoint_name": snapshot.endpoint_name,
        "age_s": _rounded(snapshot.age_s),
        "waited_s": _rounded(snapshot.waited_s),
        "weight_slots": snapshot.weight_slots,
    }


def _queued(
    dispatcher: Dispatcher, snapshots: Iterable[ExchangeSnapshot], now: float
) -> list[dict[str, Any]]:
    queued = [(each, each.ticket) for each in snapshots if each.ticket is not None]
    if not queued:
        return []
    tickets = [ticket for _, ticket in queued]
    waits = dispatcher.view.waits()
    return [
        {
            **_request(snapshot),
            "position": position.position,
            "queued": position.queued,
            "expected_s": _rounded(position.expected_s),
            "reason": waits.reason_of(ticket).value,
            **_size(ticket),
            **_note(dispatcher, ticket, now),
        }
        for (snapshot, ticket), position in zip(
            queued, dispatcher.view.positions_of(tickets, now), strict=True
        )
    ]


def _size(ticket: Ticket) -> dict[str, Any]:
    """What it is expected to take, where that is known: only where the order is by size."""
    slot_s = ticket.expected_slot_s
    return {"expected_slot_s": _rounded(slot_s)} if slot_s else {}


def _note(dispatcher: Dispatcher, ticket: Ticket, now: float) -> dict[str, Any]:
    """The load that it waits for, if it does."""
    note = dispatcher.view.note_of(ticket, now)
    return {"note": note} if note else {}


def _ended(record: ExchangeRecord, now: float) -> dict[str, Any]:
    return {
        "id": record.exchange_id,
        "outcome": record.outcome.value,
        "reason": "" if record.reason is None else record.reason.value,
        "status": record.status,
        "model": record.model,
        "criticality": record.criticality,
        "client": record.client,
        **({"pool": record.pool} if record.pool else {}),
        "endpoint": "" if record.endpoint is None else str(record.endpoint),
        "endpoint_name": record.endpoint_name,
        "ended_age_s": _rounded(now - record.began_at - record.duration_s),
        "waited_s": _rounded(record.waited_s),
        "first_token_s": _rounded(record.first_token_s),
        "duration_s": _rounded(record.duration_s),
        "output_tokens": record.output_tokens,
        "tier": record.tier,
    }


def takes_slot(record: ExchangeRecord) -> bool:
    """Whether an ended exchange belongs into the list."""
    return record.outcome is not Outcome.PASSED


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(max(0.0, seconds), 3)
