"""Compares leases, tickets, streams and limits, and releases what belongs to no request.

It should never find anything: each fault is a bug, which is logged as an error and counted. A fault
is corrected when two audits in a row have found it, within five seconds.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from extproc.app.paced import PacedWork
from extproc.core.client_limits import ClientLimits
from extproc.core.exchange_registry import ExchangeRegistry, KnownExchange
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason, Rejected
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.slots.lease import Lease, LeaseEnd, LeaseState
from extproc.stream.pending_streams import PendingStreams

INTERVAL_S: Final = 1.0
KINDS: Final = ("lease", "ticket", "stream", "books", "limit")

log = logging.getLogger("coxswain.audit")


@dataclass(frozen=True, slots=True)
class Fault:
    """An inconsistency. `key` is the same in the next audit if it persists."""

    kind: str
    key: str
    text: str
    correct: Callable[[float], None]
    """Corrects it; `now` is monotonic seconds."""


class Auditor:
    """Belongs to one event loop, on which it runs once a second, beside the requests.

    An audit is O(endpoints + leases + tickets), a few milliseconds for ten thousand of them.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: ExchangeRegistry,
        pending_streams: PendingStreams,
        clock: Callable[[], float],
        limits: ClientLimits,
    ) -> None:
        self._dispatcher = dispatcher
        self._registry = registry
        self._pending_streams = pending_streams
        self._clock = clock
        self._limits = limits
        self._suspected: frozenset[str] = frozenset()
        self._corrections = dict.fromkeys(KINDS, 0)
        self._audits = PacedWork("the audit", self._audit_now, INTERVAL_S, log)

    def corrections(self) -> Mapping[str, int]:
        """How many faults of each kind were corrected since the start."""
        return self._corrections

    def start(self) -> None:
        """Audit once a second from now on, and less often where that takes much of a core."""
        self._audits.start()

    def stop(self) -> None:
        """Stop auditing; calling it twice is no error."""
        self._audits.stop()

    def _audit_now(self) -> None:
        self.audit(self._clock())

    def audit(self, now: float) -> list[Fault]:
        """Audit once, and correct the faults that the previous audit also found.

        Returns all faults. Never blocks.
        """
        found = list(self._faults(now))
        for fault in found:
            if fault.key not in self._suspected:
                continue
            log.error("audit: %s", fault.text)
            self._corrections[fault.kind] += 1
            try:
                fault.correct(now)
            except Exception:
                log.exception("audit: the correction failed")
        self._suspected = frozenset(fault.key for fault in found)
        return found

    def _faults(self, now: float) -> Iterator[Fault]:
        yield from self._stray_streams()
        yield from self._leases_without_stream()
        yield from self._tickets_without_stream()
        yield from self._streams_without_ticket()
        yield from self._counts_without_stream()
        for text in self._dispatcher.faults(now):
            fault = f"the ledger is inconsistent: {text}"
            yield Fault("books", fault, fault, self._dispatcher.rebuild)

    def _stray_streams(self) -> Iterator[Fault]:
        """Streams that have ended, or that hold a closed lease."""
        for stream in list(self._registry):
            lease = stream.lease
            if stream.is_over:
                yield Fault(
                    *("stream", f"ended {stream.id}"),
                    f"exchange {stream.id} has ended but is still registered; removed it",
                    partial(self._forget, stream),
                )
            elif lease is not None and lease.state is not LeaseState.OPEN:
                yield Fault(
                    *("stream", f"closed {stream.id}"),
                    f"exchange {stream.id} holds {lease}, which is closed; dropped the lease",
                    partial(self._drop_lease, stream),
                )

    def _forget(self, stream: KnownExchange, now: float) -> None:
        try:
            stream.give_back(now)
        finally:
            self._registry.leave(stream)

    def _drop_lease(self, stream: KnownExchange, _: float) -> None:
        stream.drop_lease()

    def _leases_without_stream(self) -> Iterator[Fault]:
        owned = {stream.lease.id for stream in self._registry if stream.lease is not None}
        for lease in list(self._dispatcher.view.leases()):
            if lease.state is LeaseState.OPEN and lease.id not in owned:
                yield Fault(
                    *("lease", f"lease {lease.id}"),
                    f"{lease} belongs to no request; released it",
                    partial(self._release, lease),
                )

    def _release(self, lease: Lease, now: float) -> None:
        self._dispatcher.release(lease, LeaseEnd.ABANDONED, now)

    def _tickets_without_stream(self) -> Iterator[Fault]:
        for ticket in list(self._dispatcher.queue):
            if ticket not in self._pending_streams:
                yield Fault(
                    *("ticket", f"ticket {ticket.id}"),
                    f"ticket {ticket.id} is queued but has no stream; withdrew it",
                    partial(self._dispatcher.withdraw, ticket),
                )

    def _streams_without_ticket(self) -> Iterator[Fault]:
        for ticket in list(self._pending_streams.tickets()):
            if not ticket.is_waiting:
                yield Fault(
                    *("stream", f"forgotten {ticket.id}"),
                    f"a stream waits with ticket {ticket.id}, which is not queued; rejected it",
                    partial(self._reject, ticket),
                )

    def _counts_without_stream(self) -> Iterator[Fault]:
        for client, exchange_id in self._limits.held():
            if self._registry.get(exchange_id) is None:
                yield Fault(
                    *("limit", f"limit {exchange_id}"),
                    f"exchange {exchange_id} has ended but counts for a limit of {client}; "
                    "uncounted it",
                    partial(self._uncount, client, exchange_id),
                )

    def _uncount(self, client: str, exchange_id: str, _: float) -> None:
        self._limits.end(client, exchange_id)

    def _reject(self, ticket: Ticket, now: float) -> None:
        rejection = Rejected(
            reason=Reason.INTERNAL_ERROR, waited_s=now - ticket.entered_at, retry_after_s=1.0
        )
        self._pending_streams.settled(ticket, rejection)
