"""Claims about extproc/status/event_feed.py, on a real core."""

from __future__ import annotations

from typing import Any

from extproc.core.address import Address
from extproc.core.budgets import Budget
from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.observation import Issue, ModelReading, ScrapeStatus
from extproc.records.fleet_events import MAX_EVENTS, FleetEvents
from extproc.status.event_feed import MAX_LISTED, EventFeed
from tests.fakes.small_fleet import SmallFleet

SLOW = Issue(code="slow-slots", message="/slots is slow", remedy="wait")


class Harness:
    """A fleet of two servers whose arrival was noticed."""

    def __init__(self) -> None:
        self.fleet = SmallFleet(1, 1)
        self.dispatcher = self.fleet.dispatcher
        self.bypassed = 0
        self.off: list[str] = []
        self.kept: set[Address] = set()
        self.keys: dict[str, str] | None = None
        self.limits = ClientLimits({"ann": ClientLimit(daily=Budget(tokens=10))})
        self.events = FleetEvents()
        self.feed = EventFeed(
            self.dispatcher,
            lambda: self.bypassed,
            self.events,
            rule_problems=lambda: self.off,
            kept=lambda: self.kept,
            keys=lambda: self.keys,
            limits=self.limits,
        )
        self.first, self.second = self.fleet.addresses
        assert [each["kind"] for each in self.news()] == ["joined", "ready"] * 2

    def news(self) -> list[dict[str, Any]]:
        """The events of one comparison, in order."""
        known = {each["id"] for each in self.feed.as_json(self.fleet.now)}
        self.fleet.now += 1.0
        self.feed.advance(self.fleet.now)
        events = self.feed.as_json(self.fleet.now)
        return [each for each in reversed(events) if each["id"] not in known]

    def said(self) -> list[tuple[str, str]]:
        return [(each["kind"], each["endpoint"]) for each in self.news()]


def test_keys_and_budgets_of_clients() -> None:
    """Those that are there at the start are none; each with the name of its client."""
    harness = Harness()
    harness.keys = {"a" * 64: "ann", "b" * 64: "bob"}
    assert harness.news() == []
    harness.keys = {"c" * 64: "ann", "b" * 64: "bob"}
    added, ended = harness.news()
    assert (added["kind"], added["text"]) == ("key-added", "the key cccccccccccc of ann opens")
    assert ended["kind"] == "key-ended" and "aaaaaaaaaaaa of ann" in ended["text"]
    harness.limits.spent("ann", 10, harness.fleet.now)
    (event,) = harness.news()
    assert event["text"] == "ann has used up its budget of this day"
    assert harness.news() == []
    assert [event.client for event in harness.events.newest_first()][:3] == ["ann"] * 3


def test_issues_that_appear_and_end() -> None:
    """Once each, with what is wrong; a new text of the same issue is no event."""
    harness = Harness()
    harness.fleet.scrape(harness.first, slots=1, issues=(SLOW,))
    (event,) = harness.news()
    assert (event["kind"], event["text"]) == ("issue", "slow-slots: /slots is slow")
    assert event["endpoint"] == str(harness.first) and event["age_s"] == 0.0
    other = Issue(code="slow-slots", message="/slots is slower", remedy="wait")
    harness.fleet.scrape(harness.first, slots=1, issues=(other,))
    assert harness.said() == []
    harness.fleet.scrape(harness.first, slots=1)
    assert harness.said() == [("ended", str(harness.first))]


def test_a_drain_and_its_end() -> None:
    """That it began, that no request runs there any more, and that it serves again."""
    harness = Harness()
    address = str(harness.first)
    lease = harness.fleet.pick()
    harness.dispatcher.set_intent(lease.address, Intent.DRAINING, harness.fleet.now)
    address = str(lease.address)
    assert harness.said() == [("draining", address)]
    assert harness.said() == []
    harness.fleet.finish(lease)
    assert harness.said() == [("drained", address)]
    harness.dispatcher.set_intent(lease.address, Intent.ACTIVE, harness.fleet.now)
    assert harness.said() == [("active", address)]


def test_ejections_bypasses_and_members() -> None:
    """An ejection has its own word; bypasses are counted; who leaves is named."""
    harness = Harness()
    endpoint = harness.fleet.endpoint(harness.first)
    endpoint.ejection_issue = Issue(code="ejected", message="it fails", remedy="restart it")
    harness.bypassed = 3
    ejected, bypassed = harness.news()
    assert (ejected["kind"], ejected["text"]) == ("ejected", "ejected: it fails")
    assert bypassed["kind"] == "bypassed" and "3 requests" in bypassed["text"]
    assert bypassed["endpoint"] == ""
    harness.fleet.name(harness.second)
    assert harness.said() == [("left", str(harness.first))]


def test_a_removed_endpoint_that_still_works() -> None:
    """It is said when no source names it any more, and again when it has left."""
    harness = Harness()
    lease = harness.fleet.pick()
    harness.fleet.name(*({harness.first, harness.second} - {lease.address}))
    assert harness.said() == [("removed", str(lease.address))]
    harness.fleet.finish(lease)
    assert harness.said() == [("left", str(lease.address))]


def test_names_are_those_that_people_know() -> None:
    """And the events of one endpoint can be read alone."""
    harness = Harness()
    harness.dispatcher.set_members(
        "test", [EndpointSpec(address=harness.first, name="gpu-1")], harness.fleet.now
    )
    harness.fleet.scrape(harness.first, slots=1, issues=(SLOW,))
    left, issue = sorted(harness.news(), key=lambda each: str(each["kind"]), reverse=True)
    assert (left["kind"], issue["endpoint_name"]) == ("left", "gpu-1")
    own = harness.feed.as_json(harness.fleet.now, harness.first)
    assert [each["kind"] for each in own] == ["issue", "ready", "joined"]


def test_memory_and_answers_are_bounded() -> None:
    """The last events remain, newest first."""
    harness = Harness()
    for _ in range(MAX_EVENTS + 10):
        harness.bypassed += 1
        harness.news()
    events = harness.feed.as_json(harness.fleet.now)
    assert len(events) == MAX_LISTED
    assert [each["id"] for each in events] == sorted((each["id"] for each in events), reverse=True)


def test_health_overflows_and_rules() -> None:
    """Who cannot be reached, and who serves again; a context that was full; a rule that is off."""
    harness = Harness()
    harness.fleet.scrape(harness.first, status=ScrapeStatus.UNREACHABLE)
    harness.fleet.scrape(harness.first, status=ScrapeStatus.UNREACHABLE)
    harness.fleet.scrape(harness.first, status=ScrapeStatus.UNREACHABLE)
    assert harness.said() == [("unreachable", str(harness.first))]
    harness.fleet.scrape(harness.first, slots=1)
    assert harness.said() == [("ready", str(harness.first))]
    harness.fleet.endpoint(harness.first).overflows = 1
    assert [kind for kind, _ in harness.said()] == ["overflow", "issue"]
    harness.off = ["the rule x is off"]
    (event,) = harness.news()
    assert (event["kind"], event["text"]) == ("rule-off", "the rule x is off")
    assert harness.said() == []


def test_an_ejection_ends_as_a_recovery() -> None:
    harness = Harness()
    endpoint = harness.fleet.endpoint(harness.first)
    endpoint.ejection_issue = Issue(code="ejected", message="it fails", remedy="restart it")
    assert harness.said() == [("ejected", str(harness.first))]
    endpoint.ejection_issue = None
    assert harness.said() == [("recovered", str(harness.first))]


def test_loads_of_a_server_of_several_models() -> None:
    """Unless somebody else reports these; what it has at first is no news."""
    harness = Harness()
    here, there = harness.first, harness.second
    for address, is_loaded in ((here, (True, False)), (there, (True, False))):
        harness.fleet.scrape(address, slots=1, models=models(*is_loaded))
    harness.news()
    harness.kept = {there}
    for address in (here, there):
        harness.fleet.scrape(address, slots=1, models=models(False, True))
    found = [(each["kind"], each["endpoint"]) for each in harness.news()]
    assert found == [("model-loaded", str(here)), ("model-unloaded", str(here))]
    assert [event.model for event in harness.events.after(harness.events.last - 2)] == ["b", "a"]


def models(*are_loaded: bool) -> tuple[ModelReading, ...]:
    return tuple(
        ModelReading(name=name, is_loaded=is_loaded)
        for name, is_loaded in zip("ab", are_loaded, strict=True)
    )
