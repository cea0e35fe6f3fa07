"""Claims about APIs: a request goes only to servers that have the API of its path, and none of the
core asks which kind a server is."""

from __future__ import annotations

from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.outliers.pauses import LONGEST_PAUSE_S
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from tests.fakes.small_fleet import SmallFleet


def say(fleet: SmallFleet, number: int, *apis: str, slots: int = 1) -> Address:
    """One of the servers says which APIs it has."""
    address = fleet.addresses[number]
    fleet.now += 1.0
    observation = Observation(
        address=address,
        began_at=fleet.now,
        answered_at=fleet.now,
        status=ScrapeStatus.READY,
        slots=slots,
        runner="some",
        apis=frozenset(apis),
    )
    fleet.dispatcher.observe(observation, fleet.now)
    return address


def ask(fleet: SmallFleet, api: str) -> object:
    request = Request(id=api, timeout_s=60.0, api=api)
    return fleet.dispatcher.submit(request, fleet.now)


def test_a_request_waits_for_a_server_of_its_api_though_others_are_free() -> None:
    fleet = SmallFleet(1, 1)
    first, _ = say(fleet, 0, "a"), say(fleet, 1, "b")
    picked = ask(fleet, "a")
    assert isinstance(picked, Picked)
    assert (picked.lease.address, picked.fallbacks) == (first, ())
    assert isinstance(ask(fleet, "a"), Queued)
    assert isinstance(ask(fleet, ""), Picked), "all servers have the API without a name"


def test_an_api_that_no_server_has_is_no_path_of_this_fleet() -> None:
    fleet = SmallFleet(1, 1)
    say(fleet, 0, "a")
    assert isinstance(ask(fleet, "c"), Picked), "the second one has not said what it has"
    say(fleet, 1, "b")
    found = ask(fleet, "c")
    assert isinstance(found, Rejected)
    assert found.reason is Reason.UNKNOWN_PATH
    say(fleet, 1, "b", "c")
    assert not isinstance(ask(fleet, "c"), Rejected), "it is another server now"


def test_requests_without_a_slot_follow_their_api_too() -> None:
    fleet = SmallFleet(1, 1)
    first, second = say(fleet, 0, "a"), say(fleet, 1, "b")
    for api, expected in (("a", {first}), ("b", {second}), ("", {first, second})):
        resolved = fleet.dispatcher.resolver.resolve(Request(id="x", timeout_s=0.0, api=api))
        assert not isinstance(resolved, Reason)
        assert set(fleet.dispatcher.passing(resolved.constraints)) == expected


def test_a_queued_request_keeps_its_api_when_names_change() -> None:
    fleet = SmallFleet(1, 1)
    say(fleet, 0, "a")
    say(fleet, 1, "b")
    assert isinstance(ask(fleet, "a"), Picked)
    waiting = ask(fleet, "a")
    assert isinstance(waiting, Queued)
    say(fleet, 1, "b", slots=8)
    assert waiting.ticket.id not in fleet.listener.settlements


def test_one_that_asked_for_a_pause_gets_nothing_until_it_is_over() -> None:
    """Its slots are not shown, so nothing else says that it is full."""
    fleet = SmallFleet()
    address = fleet.add(2, busy=None)
    lease = fleet.pick()
    fleet.dispatcher.paused(lease, 30.0, fleet.now)
    fleet.finish(lease)
    ticket = fleet.queue(timeout_s=600.0)
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    assert [issue.code for issue in endpoint.issues] == ["paused"]
    fleet.pass_time(29.0)
    fleet.scrape(address, busy=None, slots=2)
    assert ticket.id not in fleet.listener.settlements
    fleet.pass_time(2.0)
    assert fleet.handed(ticket).address == address
    assert endpoint.issues == ()


def test_a_pause_is_never_shorter_for_a_second_answer_and_has_a_bound() -> None:
    fleet = SmallFleet()
    address = fleet.add(2, busy=None)
    first, second = fleet.pick(), fleet.pick()
    fleet.dispatcher.paused(first, 20.0, fleet.now)
    fleet.dispatcher.paused(second, None, fleet.now)
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    assert endpoint.paused_until == fleet.now + 20.0
    fleet.dispatcher.paused(second, 1e9, fleet.now)
    assert endpoint.paused_until == fleet.now + LONGEST_PAUSE_S


def test_a_server_that_shows_its_slots_is_not_paused() -> None:
    """Its count says when it takes more: a picker behind this one answers 429 too."""
    fleet = SmallFleet(2)
    fleet.dispatcher.paused(fleet.pick(), 30.0, fleet.now)
    assert fleet.pick()


def test_a_paused_server_that_left_the_fleet_is_forgotten() -> None:
    fleet = SmallFleet()
    fleet.add(2, busy=None)
    lease = fleet.pick()
    fleet.dispatcher.paused(lease, 30.0, fleet.now)
    fleet.finish(lease)
    fleet.name()
    fleet.pass_time(60.0)
    wakeup = fleet.dispatcher.next_wakeup()
    assert wakeup is None or wakeup > fleet.now, "nothing is left that is due"
