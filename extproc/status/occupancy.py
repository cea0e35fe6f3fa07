"""Mean numbers of leased slots and of queued requests, by the time that requests took.

A number that is read every few seconds shows nothing of requests that begin and end in between: a
fleet that embeds all day looked idle. The sum of the slot-seconds within an interval, divided by
its length, counts all of them; so does that of the queue times (Little's law).
"""

from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry, KnownExchange


class Occupancy:
    """What exchanges took since the last reading. `ended` costs a microsecond, `take` is
    O(exchanges). Times are monotonic seconds."""

    def __init__(self, registry: ExchangeRegistry) -> None:
        self._registry = registry
        self._since: float | None = None
        self._slot_s = 0.0
        self._queued_s = 0.0

    def request_ended(self, record: ExchangeRecord) -> None:
        """An exchange has ended."""
        since = self._since
        if since is None:
            return
        opened_at, ended_at = record.opened_at, record.ended_at
        if opened_at is not None and ended_at > opened_at:
            part = _overlap(opened_at, ended_at, since) / (ended_at - opened_at)
            self._slot_s += part * record.slot_s
        settled_at = ended_at if opened_at is None else opened_at
        self._queued_s += _overlap(settled_at - record.waited_s, settled_at, since)

    def take(self, now: float) -> tuple[float, float]:
        """The means of leased slots and of queued requests since the last call; at the first call
        the numbers of now."""
        since, self._since = self._since, now
        length_s = 0.0 if since is None else now - since
        if since is None or length_s <= 0.0:
            live = list(self._registry)
            slots = sum(one.lease.weight_slots for one in live if one.lease is not None)
            return float(slots), float(sum(one.ticket is not None for one in live))
        for exchange in self._registry:
            self._add(exchange, since, now)
        means = self._slot_s / length_s, self._queued_s / length_s
        self._slot_s = self._queued_s = 0.0
        return means

    def _add(self, exchange: KnownExchange, since: float, now: float) -> None:
        """What an exchange that has not ended took until now."""
        lease, ticket = exchange.lease, exchange.ticket
        if ticket is not None:
            self._queued_s += _overlap(ticket.entered_at, now, since)
        elif lease is not None:
            self._slot_s += lease.weight_slots * _overlap(lease.opened_at, now, since)
            if lease.opened_at > since:
                waited_s = exchange.snapshot(now).waited_s
                self._queued_s += _overlap(lease.opened_at - waited_s, lease.opened_at, since)


def _overlap(began: float, ended: float, since: float) -> float:
    """The seconds from `began` to `ended` that lie after `since`."""
    return max(0.0, ended - max(began, since))
