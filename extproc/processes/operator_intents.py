"""What operators asked of the core that leads: intents of endpoints, and endpoints that they added.

A core gets them from the core before it, through the fronts, or from the engine of the cluster, and
says what changed. An intent for an endpoint that is not there yet waits for it: agents report after
the core leads.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from extproc.admin.dependencies import NewEndpointError
from extproc.app.discovery.admin_endpoints import AddedEndpoints, arrival_of, plain_of
from extproc.core.address import Address, AddressError
from extproc.core.fleet.endpoint import Intent
from extproc.core.scheduler.dispatcher import Dispatcher

PENDING_S: Final = 600.0
"""How long an intent waits for its endpoint."""

Added = dict[str, Any]

log = logging.getLogger("coxswain.cluster")


class OperatorIntents:
    """Belongs to one event loop. As text, an entry is JSON: `intent`, and `added` for an endpoint
    that an operator added."""

    def __init__(
        self, dispatcher: Dispatcher, added: AddedEndpoints, clock: Callable[[], float]
    ) -> None:
        self._dispatcher = dispatcher
        self._added = added
        self._clock = clock
        self._pending: dict[Address, tuple[Intent, float]] = {}
        self._reported: dict[str, str] = {}

    async def add(self, plain: Added | None) -> None:
        """An operator added it to the core before this one. Its key is read again."""
        if plain is None:
            return
        try:
            await self._added.add(arrival_of(plain))
        except (NewEndpointError, KeyError, TypeError, ValueError) as error:
            log.error("an endpoint that was added is lost: %s", error)

    def set(self, address: Address, intent: Intent) -> None:
        """What operators asked of the core before this one holds on."""
        endpoint = self._dispatcher.fleet.get(address)
        if endpoint is None or endpoint.is_removed:
            if intent is not Intent.ACTIVE:
                self._pending[address] = (intent, self._clock() + PENDING_S)
            return
        self._pending.pop(address, None)
        if endpoint.intent is not intent:
            self._dispatcher.set_intent(address, intent, self._clock())

    async def restore(self, entries: Mapping[str, str], *, is_warm: bool) -> None:
        """Take over what the engine has. With `is_warm` the fronts have brought what is newer:
        which endpoints are added, and the intents of those that are there. What an operator has
        asked of this core is newer, too."""
        for address, text in entries.items():
            try:
                where, found = Address.parse(address), json.loads(text)
                intent, plain = Intent(found["intent"]), found.get("added")
            except (AddressError, ValueError, KeyError, TypeError):
                log.error("what the engine has of %s cannot be read", address[:100])
                continue
            if not is_warm:
                await self.add(plain)
            endpoint = self._dispatcher.fleet.get(where)
            if endpoint is None or (not is_warm and endpoint.intent is Intent.ACTIVE):
                self.set(where, intent)

    def members_changed(self) -> None:
        """Endpoints came or went: an intent may have waited for one."""
        for address, (intent, _) in list(self._pending.items()):
            if address in self._dispatcher.fleet:
                self.set(address, intent)

    def fleet(self) -> Iterator[tuple[str, str, Added | None]]:
        """What the next core must know of each endpoint: its address, its intent, and with what it
        was added."""
        added = {each.address: plain_of(each) for each in self._added.present()}
        for endpoint in self._dispatcher.fleet:
            is_kept = endpoint.intent is not Intent.ACTIVE or endpoint.address in added
            is_known = endpoint.is_serving and endpoint.is_routable
            if not endpoint.is_removed and (is_known or is_kept):
                plain = added.get(endpoint.address)
                yield str(endpoint.address), endpoint.intent.value, plain

    def changes(self, *, is_all: bool = False) -> dict[str, str | None]:
        """What is new for the engine since the last call, or all that there is: entries by address,
        None for those that are gone."""
        if is_all:
            self._reported = {}
        now = self._clock()
        self._pending = {key: one for key, one in self._pending.items() if one[1] > now}
        present = {
            address: _text(intent, added)
            for address, intent, added in self.fleet()
            if added is not None or intent != Intent.ACTIVE.value
        }
        for where, (waiting, _) in self._pending.items():
            present.setdefault(str(where), _text(waiting.value, None))
        changed: dict[str, str | None] = {
            address: text
            for address, text in present.items()
            if self._reported.get(address) != text
        }
        changed.update(dict.fromkeys(self._reported.keys() - present.keys()))
        self._reported = present
        return changed


def _text(intent: str, added: Added | None) -> str:
    entry: dict[str, Any] = {"intent": intent}
    if added is not None:
        entry["added"] = added
    return json.dumps(entry, sort_keys=True)
