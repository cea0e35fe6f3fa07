"""The fleet for watchers: one snapshot of all endpoints for all of them, then each change once.

While there are watchers, the fleet is compared with its last snapshot every `interval_s`. Without
watchers nothing runs, and the request path is not involved. Each watcher holds only the latest
state of each endpoint that it has not received yet, so a slow one needs no more memory than one
state for each endpoint.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from extproc.admin.call_errors import at_limit
from extproc.admin.messages import endpoint_message
from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.pb.coxswain.v1 import admin_pb2 as pb

INTERVAL_S: Final = 0.03
MAX_SHARE: Final = 0.05
"""Of the event loop's time that comparing may take; a huge fleet is compared less often."""
MAX_WATCHERS: Final = 1000

log = logging.getLogger("coxswain.admin")

Print = tuple[object, ...]
"""The attributes of an endpoint whose change is sent; the age is not one."""


@dataclass(slots=True, eq=False)
class Watcher:
    """The unsent changes of one watcher. `changed` is set while there are any."""

    pending: dict[Address, pb.Endpoint | None] = field(default_factory=dict)
    sent: set[Address] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, address: Address, message: pb.Endpoint | None) -> None:
        """Record an endpoint's state; None if it is gone."""
        if message is None and address not in self.sent:
            self.pending.pop(address, None)  # it was added and removed between two messages
        else:
            self.pending[address] = message
        self.changed.set()

    def take(self, many: int) -> list[tuple[Address, pb.Endpoint | None]]:
        """Up to `many` of the changes, oldest first; they count as sent."""
        taken = [(address, self.pending[address]) for address in list(self.pending)[:many]]
        for address, message in taken:
            del self.pending[address]
            if message is None:
                self.sent.discard(address)
            else:
                self.sent.add(address)
        if not self.pending:
            self.changed.clear()
        return taken


class EndpointBroadcaster:
    """Compares the fleet with its last snapshot while there are watchers. One event loop."""

    def __init__(
        self, dispatcher: Dispatcher, clock: Callable[[], float], interval_s: float = INTERVAL_S
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._interval_s = interval_s
        self._watchers: set[Watcher] = set()
        self._prints: dict[Address, Print] = {}
        self._messages: dict[Address, pb.Endpoint] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self) -> Iterator[Watcher]:
        """Watch within `with`: the first changes are all endpoints there are.

        Raises `CallError` when there are too many watchers.
        """
        if len(self._watchers) >= MAX_WATCHERS:
            raise at_limit(
                f"{MAX_WATCHERS} watchers are connected, which is the limit; end one of them, or "
                "poll the list"
            )
        self.compare()
        watcher = Watcher()
        for address, message in self._messages.items():
            watcher.note(address, message)
        self._watchers.add(watcher)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="compare the fleet for watchers")
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None
                self._prints.clear()
                self._messages.clear()

    def compare(self) -> None:
        """Note every change since the last call. O(endpoints), and O(changes x watchers)."""
        now = self._clock()
        gone = set(self._prints)
        for endpoint in self._dispatcher.fleet:
            address = endpoint.address
            gone.discard(address)
            fingerprint = self._print(endpoint)
            if self._prints.get(address) == fingerprint:
                continue
            self._prints[address] = fingerprint
            message = endpoint_message(self._dispatcher, endpoint, now)
            self._messages[address] = message
            for watcher in self._watchers:
                watcher.note(address, message)
        for address in gone:
            del self._prints[address]
            del self._messages[address]
            for watcher in self._watchers:
                watcher.note(address, None)

    def _print(self, endpoint: Endpoint) -> Print:
        account = self._dispatcher.view.slots_at(endpoint.address)
        return (
            account.slots,
            account.leased_slots,
            account.foreign_slots,
            len(account.leases),
            account.has_draining,
            account.reports_busy_slots,
            endpoint.runner,
            endpoint.health,
            endpoint.intent,
            endpoint.is_fresh,
            endpoint.is_routable,
            endpoint.is_removed,
            endpoint.is_waking,
            endpoint.is_going_off,
            endpoint.spec,
            self._dispatcher.fleet.name_of(endpoint.address),
            endpoint.issues,
            endpoint.models,
        )

    async def _run(self) -> None:
        while True:
            began_s = time.thread_time()  # time during which the machine stalls does not count
            try:
                self.compare()
            except Exception:
                log.exception("comparing the fleet for watchers failed; retrying")
            cost_s = time.thread_time() - began_s
            await asyncio.sleep(max(self._interval_s, cost_s / MAX_SHARE))
