"""Claims about extproc/telemetry/endpoint_counts.py."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.exchange_record import Outcome
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import ModelReading, Observation, ScrapeStatus, SlotReading
from extproc.core.rejection import Reason
from extproc.telemetry import definitions, endpoint_counts
from extproc.telemetry.counters import Distribution
from extproc.telemetry.endpoint_counts import MAX_MODELS, OTHERS, EndpointCounts, endpoint_labels
from tests.fakes.small_fleet import SmallFleet
from tests.telemetry.records import record

PLAIN = (ModelReading(name="qwen", aliases=("q",)),)
ROUTER = (
    ModelReading(name="qwen", aliases=("q",), slots=2),
    ModelReading(name="gemma", slots=2),
)


class Harness:
    def __init__(self, models: tuple[ModelReading, ...] = PLAIN, servers: int = 1) -> None:
        self.fleet = SmallFleet(*(2 for _ in range(servers)))
        self.addresses = self.fleet.addresses
        self.counts = EndpointCounts(self.fleet.dispatcher.fleet)
        self.labels = {address: f"gpu-{index}" for index, address in enumerate(self.addresses)}
        for address in self.addresses:
            endpoint = self.fleet.dispatcher.fleet.get(address)
            assert endpoint is not None
            index = self.addresses.index(address)
            endpoint.observe(self._observation(models=models, index=index), HealthOptions())

    def _observation(self, *readings: SlotReading, index: int = 0, **more: Any) -> Observation:
        return Observation(
            address=self.addresses[index],
            began_at=1.0,
            answered_at=1.0,
            status=ScrapeStatus.READY,
            busy_slots=len(readings),
            slot_readings=readings,
            **more,
        )

    def scrape(self, *readings: SlotReading, index: int = 0) -> None:
        self.counts.scraped(self._observation(*readings, index=index))

    def read(self, family: definitions.Family) -> dict[tuple[str, ...], Any]:
        return dict(self.counts.read(self.labels)[family])


def slot(
    task: int, decoded: int, *, model: str = "", cached: int = 0, new: int = 10
) -> SlotReading:
    return SlotReading(
        task_id=task,
        prompt_tokens=cached + new + decoded,
        cached_tokens=cached,
        processed_tokens=new,
        decoded_tokens=decoded,
        model=model,
    )


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({}, "ok"),
        ({"status": 400}, "client_error"),
        ({"status": 503}, "server_error"),
        ({"outcome": Outcome.BROKEN}, "broken"),
    ],
)
def test_requests_are_counted_by_endpoint_model_and_result(
    changes: dict[str, Any], result: str
) -> None:
    harness = Harness()
    harness.counts.record(record(endpoint=harness.addresses[0], model="anything", **changes))
    assert harness.read(definitions.ENDPOINT_REQUESTS) == {("gpu-0", "qwen", result): 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome.PASSED},
        {"outcome": Outcome.WITHDRAWN},
        {"outcome": Outcome.REJECTED, "reason": Reason.QUEUE_FULL},
        {"endpoint": None},
        {},
    ],
)
def test_what_had_no_slot_of_the_fleet_is_not_counted(changes: dict[str, Any]) -> None:
    """The last one names an endpoint that has left."""
    harness = Harness()
    harness.counts.record(record(**changes))
    assert harness.read(definitions.ENDPOINT_REQUESTS) == {}


@pytest.mark.parametrize(
    ("name", "model"), [("qwen", "qwen"), ("q", "qwen"), ("gemma", "gemma"), ("x" * 99, "")]
)
def test_the_model_is_one_that_the_router_reports(name: str, model: str) -> None:
    """A client can write any name; it makes no series of its own."""
    harness = Harness(ROUTER)
    harness.counts.record(record(endpoint=harness.addresses[0], model=name))
    assert harness.read(definitions.ENDPOINT_REQUESTS) == {("gpu-0", model, "ok"): 1}


def test_the_first_token_counts_from_the_end_of_the_queue() -> None:
    """What a server is responsible for."""
    harness = Harness()
    address = harness.addresses[0]
    harness.counts.record(record(endpoint=address, waited_s=3.0, first_token_s=3.25))
    harness.counts.record(record(endpoint=address, first_token_s=None))
    (found,) = harness.read(definitions.ENDPOINT_FIRST_TOKEN).values()
    assert isinstance(found, Distribution)
    assert (found.count, found.total) == (1, 0.25)


def test_tokens_are_counted_as_scrapes_see_them() -> None:
    """Each once: a prompt when its response begins, with what was cached of it."""
    harness = Harness()
    harness.scrape()
    harness.scrape(slot(7, 0))
    harness.scrape(slot(7, 3, cached=90))
    harness.scrape(slot(7, 20, cached=90), slot(8, 5))
    harness.scrape(slot(8, 5))
    harness.scrape()
    assert harness.read(definitions.ENDPOINT_GENERATED_TOKENS) == {("gpu-0", "qwen"): 25}
    assert harness.read(definitions.ENDPOINT_PROMPT_TOKENS) == {("gpu-0", "qwen"): 110}


def test_tokens_are_counted_by_the_routers_model() -> None:
    harness = Harness(ROUTER)
    harness.scrape()
    harness.scrape(slot(1, 4, model="qwen"), slot(1, 6, model="gemma"))
    found = harness.read(definitions.ENDPOINT_GENERATED_TOKENS)
    assert found == {("gpu-0", "qwen"): 4, ("gpu-0", "gemma"): 6}


def test_what_was_there_before_the_first_scrape_is_not_counted_again() -> None:
    """Nor do the tokens of a process that numbers its tasks from 0 again count backwards."""
    harness = Harness()
    harness.scrape(slot(7, 500))
    harness.scrape(slot(7, 510))
    assert harness.read(definitions.ENDPOINT_GENERATED_TOKENS) == {("gpu-0", "qwen"): 10}
    assert harness.read(definitions.ENDPOINT_PROMPT_TOKENS) == {}
    harness.scrape(slot(7, 2))
    harness.scrape(slot(7, 6))
    assert harness.read(definitions.ENDPOINT_GENERATED_TOKENS) == {("gpu-0", "qwen"): 14}


def test_a_scrape_without_slots_forgets_nothing() -> None:
    """It says nothing about them: the next one goes on from where the last one was."""
    harness = Harness()
    harness.scrape()
    harness.scrape(slot(7, 5))
    blind = Observation(
        address=harness.addresses[0], began_at=1.0, answered_at=1.0, status=ScrapeStatus.FAILED
    )
    harness.counts.scraped(blind)
    harness.scrape(slot(7, 9))
    assert harness.read(definitions.ENDPOINT_GENERATED_TOKENS) == {("gpu-0", "qwen"): 9}


def test_series_are_bounded_and_leave_with_their_endpoint() -> None:
    """However many models a router lists; several endpoints may share a label."""
    many = tuple(ModelReading(name=f"m{n}", slots=1) for n in range(MAX_MODELS + 5))
    harness = Harness(many, servers=2)
    for model in many:
        harness.counts.record(record(endpoint=harness.addresses[0], model=model.name))
    found = harness.read(definitions.ENDPOINT_REQUESTS)
    assert len(found) == MAX_MODELS + 1 and found["gpu-0", OTHERS, "ok"] == 5
    harness.labels = dict.fromkeys(harness.addresses, OTHERS)
    for address in harness.addresses:
        harness.counts.record(record(endpoint=address, model="m0", first_token_s=1.0))
    assert harness.read(definitions.ENDPOINT_REQUESTS)[OTHERS, "m0", "ok"] == 3
    tokens = harness.read(definitions.ENDPOINT_FIRST_TOKEN)[OTHERS, "m0"]
    assert tokens.count == 3
    fleet = harness.fleet.dispatcher.fleet
    for source in {name for address in harness.addresses for name in fleet.sources_of(address)}:
        harness.fleet.dispatcher.set_members(source, [], harness.fleet.now)
    assert harness.read(definitions.ENDPOINT_REQUESTS) == {}


def test_the_sum_over_all_endpoints_outlives_them() -> None:
    """It is what the metric counts, also of servers that left; unknown until one reports."""
    harness = Harness(servers=2)
    before = harness.counts.generated_tokens
    assert before is None
    for index in (0, 1):
        harness.scrape(slot(1, 0), index=index)
        harness.scrape(slot(1, 7), index=index)
    assert harness.counts.generated_tokens == 14
    assert sum(harness.read(definitions.ENDPOINT_GENERATED_TOKENS).values()) == 14
    harness.fleet.name(harness.addresses[0])
    assert sum(harness.read(definitions.ENDPOINT_GENERATED_TOKENS).values()) == 7
    assert harness.counts.generated_tokens == 14


def test_endpoints_are_called_by_their_own_name() -> None:
    """A name that two endpoints share tells nothing, so their addresses stand instead."""
    fleet = SmallFleet()
    specs = [
        EndpointSpec(address=Address("10.0.0.1", port), name=name)
        for port, name in ((1, "gpu-1"), (2, "pool"), (3, "pool"), (4, ""))
    ]
    fleet.dispatcher.set_members("test", specs, fleet.now)
    called = sorted(endpoint_labels(fleet.dispatcher.fleet).values())
    assert called == ["10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4", "gpu-1"]


def test_those_beyond_the_bound_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every endpoint has a label, and there are never more than one above the bound."""
    monkeypatch.setattr(endpoint_counts, "MAX_ENDPOINTS", 3)
    fleet = SmallFleet(*[1] * 5)
    found = endpoint_labels(fleet.dispatcher.fleet)
    assert set(found) == set(fleet.addresses)
    assert len(set(found.values())) == 4
    assert [*found.values()].count(OTHERS) == 2
