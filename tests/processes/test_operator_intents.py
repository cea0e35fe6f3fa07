"""Claims about extproc/processes/operator_intents.py: what operators asked for outlives cores,
whether its endpoints are there already or not."""

from __future__ import annotations

import json
from collections.abc import Sequence

from extproc.admin.dependencies import NewEndpoint
from extproc.app.discovery.admin_endpoints import AddedEndpoints
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.processes.operator_intents import PENDING_S, OperatorIntents
from extproc.settings import AdminSettings
from scraper.discovery.discovered_endpoint import DiscoveredEndpoint
from tests.fakes.small_fleet import SmallFleet

ADDED = Address("10.0.9.9", 8080)
LATE = Address("10.0.8.8", 8080)


class Picker:
    """A core's fleet with what operators do to it."""

    def __init__(self, *slots: int) -> None:
        self.small = SmallFleet(*slots)
        self.dispatcher = self.small.dispatcher
        self.added = AddedEndpoints(self._publish, AdminSettings)
        self.intents = OperatorIntents(self.dispatcher, self.added, lambda: self.small.now)

    def _publish(self, source: str, found: Sequence[DiscoveredEndpoint], _: bool) -> None:
        self.set_members(source, [each.spec for each in found])

    def set_members(self, source: str, specs: list[EndpointSpec]) -> None:
        self.dispatcher.set_members(source, specs, self.small.now)
        self.intents.members_changed()

    def intent(self, address: Address) -> Intent:
        endpoint = self.dispatcher.fleet.get(address)
        assert endpoint is not None
        return endpoint.intent

    def disable(self, address: Address) -> None:
        self.dispatcher.set_intent(address, Intent.DISABLED, self.small.now)

    def reported(self, *, is_all: bool = False) -> dict[str, str]:
        return {
            address: text
            for address, text in self.intents.changes(is_all=is_all).items()
            if text is not None
        }


def arrival() -> NewEndpoint:
    return NewEndpoint(address=ADDED, host=ADDED.host, name="hand", slots=3)


async def test_everything_survives_by_the_engine_alone() -> None:
    before, after = Picker(1, 1), Picker(1, 1)
    first, second = before.small.addresses
    await before.added.add(arrival())
    for address in (first, ADDED):
        before.disable(address)
    await after.intents.restore(before.reported(), is_warm=False)
    assert after.intent(first) is after.intent(ADDED) is Intent.DISABLED
    assert after.intent(second) is Intent.ACTIVE
    [kept] = after.added.present()
    assert kept == arrival()
    assert after.reported() == before.reported(is_all=True)


async def test_an_intent_waits_for_its_endpoint() -> None:
    """An agent reports it after the core leads; it gets no request before."""
    picker = Picker(1)
    entry = json.dumps({"intent": "draining"})
    await picker.intents.restore({str(LATE): entry}, is_warm=True)
    assert picker.reported() == {str(LATE): entry}, "the engine goes on to keep it"
    picker.set_members("agents", [EndpointSpec(address=LATE)])
    assert picker.intent(LATE) is Intent.DRAINING
    assert picker.intents.changes() == {}


async def test_an_intent_does_not_wait_for_ever() -> None:
    picker = Picker(1)
    await picker.intents.restore({str(LATE): json.dumps({"intent": "draining"})}, is_warm=False)
    assert picker.reported()
    picker.small.now += PENDING_S
    assert picker.intents.changes() == {str(LATE): None}
    picker.set_members("agents", [EndpointSpec(address=LATE)])
    assert picker.intent(LATE) is Intent.ACTIVE


async def test_what_fronts_have_brought_is_newer() -> None:
    """An operator activated one endpoint and removed another just before the core died."""
    before, after = Picker(1, 1), Picker(1, 1)
    first, second = before.small.addresses
    await before.added.add(arrival())
    before.disable(first)
    entries = before.reported()
    after.intents.set(first, Intent.ACTIVE)
    after.intents.set(second, Intent.DISABLED)
    await after.intents.restore(entries, is_warm=True)
    assert after.intent(first) is Intent.ACTIVE
    assert after.intent(second) is Intent.DISABLED
    assert not after.added.present()


async def test_what_an_operator_asked_of_this_core_is_newer() -> None:
    """The engine was away when it began to lead."""
    picker = Picker(1)
    [address] = picker.small.addresses
    picker.disable(address)
    entries = {str(address): json.dumps({"intent": "draining"})}
    await picker.intents.restore(entries, is_warm=False)
    assert picker.intent(address) is Intent.DISABLED


async def test_only_what_is_new_is_reported() -> None:
    picker = Picker(1)
    [address] = picker.small.addresses
    picker.disable(address)
    assert list(picker.intents.changes()) == [str(address)]
    assert picker.intents.changes() == {}
    assert list(picker.intents.changes(is_all=True)) == [str(address)]
    picker.dispatcher.set_intent(address, Intent.ACTIVE, picker.small.now)
    assert picker.intents.changes() == {str(address): None}


async def test_what_cannot_be_read_harms_nothing_else() -> None:
    picker = Picker(1)
    [address] = picker.small.addresses
    entries = {
        "nowhere": json.dumps({"intent": "disabled"}),
        "10.0.0.5:1": "no json",
        "10.0.0.5:2": json.dumps({"intent": "asleep"}),
        "10.0.0.5:3": json.dumps(["disabled"]),
        "10.0.0.5:4": json.dumps({"intent": "active", "added": {"host": "h"}}),
        "10.0.0.5:5": json.dumps({"intent": "active", "added": {"address": "10.0.0.5:5"}}),
        "10.0.0.5:6": json.dumps({"intent": "active", "added": "text"}),
        str(address): json.dumps({"intent": "disabled"}),
    }
    await picker.intents.restore(entries, is_warm=False)
    assert picker.intent(address) is Intent.DISABLED
    assert list(picker.reported()) == [str(address)]


async def test_the_next_core_hears_of_what_envoy_knows() -> None:
    """One that Envoy does not know yet is named only if an operator asked something of it."""
    picker = Picker(1, 1, 1)
    known, disabled, new = picker.small.addresses
    for address in (disabled, new):
        picker.dispatcher.set_routable(address, False, picker.small.now)
    picker.disable(disabled)
    fleet = {address: intent for address, intent, _ in picker.intents.fleet()}
    assert fleet == {str(known): "active", str(disabled): "disabled"}
