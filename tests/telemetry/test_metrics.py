"""Claims about extproc/telemetry: metrics, labels, and their two formats."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from prometheus_client.parser import text_string_to_metric_families

from extproc.core.address import Address
from extproc.core.exchange_record import Outcome
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import Observation, ScrapeStatus
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.rejection import Reason
from extproc.core.slots.lease import LeaseEnd
from extproc.telemetry import endpoint_counts
from extproc.telemetry import metrics as metrics_module
from extproc.telemetry.definitions import Kind
from extproc.telemetry.endpoint_counts import OTHERS
from extproc.telemetry.metrics import Metrics, TelemetrySources
from extproc.telemetry.otlp_metrics import metrics_request
from extproc.telemetry.prometheus import prometheus_text
from extproc.telemetry.reading import Reading
from tests.fakes.otlp_receiver import text_attributes
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet
from tests.telemetry.families import (
    CLUSTER_FAMILIES,
    FAMILIES,
    PROCESS_FAMILIES,
    USAGE_FAMILIES,
)
from tests.telemetry.records import record

ROOT = Path(__file__).parents[2]


def metrics_of(fleet: SmallFleet | SteeredFleet) -> Metrics:
    return Metrics(
        fleet.dispatcher,
        TelemetrySources(
            running=lambda: 7,
            queue_depths=lambda: {"standard": 3},
            problems=lambda: ["fleet.yaml cannot be read", "dns: llama.test: no answer"],
            audit_corrections=lambda: {"lease": 0, "ticket": 2},
        ),
        version="1.2.3",
        clock=lambda: fleet.now,
        dropped=lambda: {"spans": 5},
    )


def samples(reading: Reading) -> dict[tuple[str, ...], float]:
    """What Prometheus reads: the sample's name and its label values, sorted by label name."""
    text = prometheus_text(reading).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def otlp(reading: Reading) -> dict[str, Any]:
    request = metrics_request(reading, Resource(), InstrumentationScope(name="coxswain"))
    return {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}


def scrape(address: Address, snapshot: ScrapeStatus) -> Observation:
    return Observation(address=address, began_at=1.0, answered_at=1.0, status=snapshot)


def test_slots_by_state_add_up() -> None:
    """All of an endpoint's slots are told; those of a server that is down are unusable."""
    fleet = SmallFleet(4)
    fleet.scrape(fleet.addresses[0], busy=1, slots=4)
    found = samples(metrics_of(fleet).read())
    address = str(fleet.addresses[0])
    states = ("idle", "foreign", "leased", "unusable")
    assert [found["coxswain_slots", address, state] for state in states] == [3, 1, 0, 0]
    assert found["coxswain_endpoints", "ready"] == 1
    fleet.scrape(fleet.addresses[0], status=ScrapeStatus.UNREACHABLE, busy=None)
    found = samples(metrics_of(fleet).read())
    assert [found["coxswain_slots", address, state] for state in states] == [0, 0, 0, 4]
    assert found["coxswain_endpoints", "down"] == 1


def test_tokens_of_a_shared_context() -> None:
    """By state, with the overflows, of each endpoint whose slots share one; of no other."""
    fleet = SteeredFleet(context=ContextSharing.SHARED)
    address = fleet.add(4, context_tokens=1024)
    fleet.add(1, context_tokens=1024)
    here = frozenset({address})
    fleet.pick(prompt_tokens=50, prompt_chars=200, max_tokens=100, allowed=here)
    found = samples(metrics_of(fleet).read())
    states = ("held", "reserved", "free", "total")
    shown = [found["coxswain_context_tokens", str(address), state] for state in states]
    assert shown == [264, 364, 628, 1024]
    assert found["coxswain_context_overflows_total", str(address)] == 0
    assert len([key for key in found if key[0] == "coxswain_context_tokens"]) == len(states)


def test_ejections_by_cause() -> None:
    """One that is out, or on trial, and how often it was for what."""
    fleet = SmallFleet(4, 1)
    bad, good = fleet.addresses
    full = fleet.pick()
    while full.address != good:
        full = fleet.pick()
    for fault in (Fault.RESET, Fault.RESET, Fault.SERVER_ERROR):
        lease = fleet.pick()
        assert lease.address == bad
        fleet.dispatcher.failed(lease, fault, fleet.now)
        fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
    found = samples(metrics_of(fleet).read())
    assert found["coxswain_endpoint_ejected", str(bad)] == 1
    assert found["coxswain_endpoint_ejected", str(good)] == 0
    assert found["coxswain_endpoint_ejections_total", "5xx", str(bad)] == 1


def test_requests_by_outcome_and_class() -> None:
    """A rejection counts under its reason; a request that takes no slot has no class."""
    metrics = metrics_of(SmallFleet(1))
    metrics.record(record())
    metrics.record(record(criticality="critical"))
    metrics.record(record(outcome=Outcome.REJECTED, reason=Reason.QUEUE_TIMEOUT))
    metrics.record(record(outcome=Outcome.PASSED))
    found = samples(metrics.read())
    assert found["coxswain_requests_total", "standard", "served"] == 1
    assert found["coxswain_requests_total", "critical", "served"] == 1
    assert found["coxswain_requests_total", "standard", "queue-timeout"] == 1
    assert found["coxswain_requests_total", "none", "passed"] == 1
    assert metrics.outcomes() == {"served": 2, "queue-timeout": 1, "passed": 1}
    assert found["coxswain_queue_wait_seconds_count",] == 3, "passing requests do not wait"
    assert found["coxswain_time_to_first_token_seconds_sum",] == pytest.approx(3 * 0.75)


def test_only_those_who_waited_or_got_a_slot_count_as_waits() -> None:
    """Not who was refused at once, nor who left before it was decided on; in vain counts too."""
    metrics = metrics_of(SmallFleet(1))
    metrics.record(record(waited_s=0.0))
    metrics.record(record(waited_s=0.0, outcome=Outcome.BROKEN))
    metrics.record(record(waited_s=4.0, outcome=Outcome.WITHDRAWN))
    metrics.record(record(waited_s=8.0, outcome=Outcome.REJECTED, reason=Reason.QUEUE_TIMEOUT))
    metrics.record(record(waited_s=0.0, outcome=Outcome.REJECTED, reason=Reason.QUEUE_FULL))
    metrics.record(record(waited_s=0.0, outcome=Outcome.WITHDRAWN, decided_at=None))
    metrics.record(record(outcome=Outcome.REJECTED, waited_s=0.0, criticality=""))
    found = samples(metrics.read())
    assert found["coxswain_queue_wait_seconds_count",] == 4
    assert found["coxswain_queue_wait_seconds_sum",] == 12.0
    assert found["coxswain_pick_seconds_count",] == 6
    assert found["coxswain_requests_total", "none", "rejected"] == 1


def test_histogram_buckets_cumulate() -> None:
    """A wait of half a second is in every bucket from 0.5 upward, and in none below."""
    metrics = metrics_of(SmallFleet(1))
    metrics.record(record(waited_s=0.5))
    found = samples(metrics.read())
    buckets = [found["coxswain_queue_wait_seconds_bucket", le] for le in ("0.25", "0.5", "+Inf")]
    assert buckets == [0, 1, 1]


def test_both_formats_report_the_same() -> None:
    """OTLP carries the names, labels and numbers of the Prometheus text."""
    fleet = SmallFleet(2, 4)
    metrics = metrics_of(fleet)
    metrics.record(record())
    metrics.scraped(scrape(fleet.addresses[0], ScrapeStatus.READY))
    reading = metrics.read()
    found, sent = samples(reading), otlp(reading)
    assert set(sent) == {family.name for family, values in reading.families.items() if values}
    for point in sent["coxswain_slots"].gauge.data_points:
        attributes = text_attributes(point)
        key = ("coxswain_slots", attributes["endpoint"], attributes["state"])
        assert found[key] == point.as_double
    (wait,) = sent["coxswain_queue_wait_seconds"].histogram.data_points
    assert wait.count == found["coxswain_queue_wait_seconds_count",] == 1
    assert wait.sum == found["coxswain_queue_wait_seconds_sum",] == 0.5
    assert len(wait.bucket_counts) == len(wait.explicit_bounds) + 1
    (requests,) = sent["coxswain_requests_total"].sum.data_points
    assert requests.as_int == 1 and requests.start_time_unix_nano <= requests.time_unix_nano


def test_requests_with_an_slo_are_counted_by_result() -> None:
    fleet = SmallFleet(1)
    for was_met in (True, False, False):
        fleet.dispatcher.state.slo_attainment.record("chat", was_met, fleet.now)
    fleet.dispatcher.state.slo_attainment.record("tools", was_met=True, now=fleet.now)
    found = samples(metrics_of(fleet).read())
    told = {key[1:]: n for key, n in found.items() if key[0] == "coxswain_slo_requests_total"}
    assert told == {
        ("chat", "met"): 1.0,
        ("chat", "missed"): 2.0,
        ("tools", "met"): 1.0,
        ("tools", "missed"): 0.0,
    }


def test_every_family_is_read_and_described() -> None:
    """The table of metrics is what a reading holds, in full, and every histogram has buckets."""
    reading = metrics_of(SmallFleet(1)).read()
    assert set(reading.families) == set(FAMILIES) - {
        *USAGE_FAMILIES,
        *PROCESS_FAMILIES,
        *CLUSTER_FAMILIES,
    }
    assert all((family.kind is Kind.HISTOGRAM) == bool(family.buckets) for family in FAMILIES)
    assert all(list(family.buckets) == sorted(set(family.buckets)) for family in FAMILIES)
    assert all(family.help.endswith(".") for family in FAMILIES)


def test_an_endpoint_that_left_disappears() -> None:
    """Nothing of it stays, neither gauges nor counters: labels do not pile up."""
    fleet = SmallFleet(1, 1)
    metrics = metrics_of(fleet)
    stays, leaves = fleet.addresses
    for address in fleet.addresses:
        metrics.scraped(scrape(address, ScrapeStatus.READY))
    assert any(str(leaves) in key for key in samples(metrics.read()))
    fleet.name(stays)
    assert not any(str(leaves) in key for key in samples(metrics.read()))
    fleet.name(stays, leaves)
    assert ("coxswain_scrapes_total", str(leaves), "ready") not in samples(metrics.read())


def test_endpoints_that_left_are_forgotten_also_when_nobody_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that comes back after many others is counted again."""
    monkeypatch.setattr(metrics_module, "MAX_REMOVED", 10)
    fleet = SmallFleet()
    metrics = metrics_of(fleet)
    one = Address("10.1.0.0", 8000)
    for last in range(20):
        metrics.scraped(scrape(Address(f"10.1.0.{last}", 8000), ScrapeStatus.READY))
    fleet.dispatcher.set_members("s", [EndpointSpec(address=one)], fleet.now)
    metrics.scraped(scrape(one, ScrapeStatus.READY))
    assert samples(metrics.read())["coxswain_scrapes_total", str(one), "ready"] == 1


def test_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound endpoints are added up under one label, and no slot gets lost."""
    monkeypatch.setattr(endpoint_counts, "MAX_ENDPOINTS", 3)
    found = samples(metrics_of(SmallFleet(*[2] * 5)).read())
    idle = {key[1]: value for key, value in found.items() if key[::2] == ("coxswain_slots", "idle")}
    assert len(idle) == 4 and idle[OTHERS] == 4 and sum(idle.values()) == 10


def test_the_largest_age_stands_for_all_that_share_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or an alert would miss a stale one among them."""
    monkeypatch.setattr(endpoint_counts, "MAX_ENDPOINTS", 1)
    fleet = SmallFleet(2)
    for later_s in (30.0, 70.0):
        fleet.add(2)
        fleet.now += later_s
    found = samples(metrics_of(fleet).read())
    assert found["coxswain_observation_age_seconds", OTHERS] == 100
    fleet.scrape(fleet.addresses[1], slots=2)
    found = samples(metrics_of(fleet).read())
    assert found["coxswain_observation_age_seconds", OTHERS] == 70


def test_drops_problems_and_version_are_reported() -> None:
    """What telemetry lost is a metric, so is what cannot be read, and which version runs."""
    found = samples(metrics_of(SmallFleet()).read())
    assert found["coxswain_telemetry_dropped_total", "spans"] == 5
    assert found["coxswain_problems",] == 2
    assert found["coxswain_build_info", "1.2.3"] == 1


def test_the_documented_rule_scales_the_model_that_needs_it() -> None:
    """Of two models, one is queued while the other has idle slots, which sums would hide."""
    page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
    rule = re.search(r'^(coxswain_\w+)\{model="\w+"\}$', page, re.MULTILINE)
    assert rule is not None

    def wanted(fleet: SteeredFleet) -> dict[str, float]:
        assert rule is not None
        found = samples(metrics_of(fleet).read())
        return {labels[0]: value for (name, *labels), value in found.items() if name == rule[1]}

    fleet = SteeredFleet()
    fleet.add(2, models=["big"])
    fleet.add(2, models=["small"])
    assert wanted(fleet) == {"big": 1, "small": 1}
    leases = [fleet.pick(model="big") for _ in range(2)]
    fleet.now += 60
    for lease in leases:
        fleet.finish(lease)
    for _ in range(2):
        fleet.pick(model="big")
    for _ in range(6):
        fleet.queue(model="big")
    found = wanted(fleet)
    assert found["big"] >= 4 and found["small"] == 1, "two run and six are queued"
    empty = SteeredFleet()
    empty.queue(model="big")
    assert wanted(empty) == {"": 1}, "from zero"


def test_several_pools_are_a_label_and_one_is_none() -> None:
    """The names of models in two pools are two series; with one pool, or none, all names, labels
    and sums are as without."""
    fleet = SteeredFleet()
    metrics = metrics_of(fleet)

    def configure(*pools: str) -> dict[tuple[str, ...], float]:
        before = fleet.dispatcher.options
        resolver = ResolverOptions(pools={name: ResolverOptions() for name in pools})
        fleet.dispatcher.renew(replace(before, resolver=resolver), fleet.now)
        specs = [
            EndpointSpec(address=Address("10.0.0.1", 8000 + number), name=pool, pool=pool)
            for number, pool in enumerate(pools)
        ]
        fleet.dispatcher.set_members("test", specs, fleet.now)
        for spec in specs:
            fleet.scrape(spec.address, slots=1, busy_slots=0, models=["tiny"])
        return samples(metrics.read())

    configure("chat", "batch")
    fleet.pick(pool="batch"), fleet.queue(pool="batch")
    metrics.record(record(pool="batch"))
    metrics.record(record(pool="chat"))
    found = configure("chat", "batch")
    assert found["coxswain_queue_depth", "standard", "batch"] == 1
    assert found["coxswain_queue_depth", "standard", "chat"] == 0
    assert found["coxswain_queue_max_requests", "chat"] == 100, "comparable with the depth"
    assert found["coxswain_slots", "batch", "batch", "leased"] == 1
    assert found["coxswain_model_idle_slots", "tiny", "chat"] == 1
    assert found["coxswain_model_idle_slots", "tiny", "batch"] == 0
    assert found["coxswain_model_wanted_servers", "tiny", "batch"] == 1
    assert found["coxswain_requests_total", "standard", "served", "batch"] == 1

    kept = metrics.as_plain()
    one = configure("batch")
    assert one["coxswain_queue_depth", "standard"] == 3, "as the shell counts"
    assert one["coxswain_queue_max_requests",] == 100
    assert one["coxswain_model_idle_slots", "tiny"] == 0
    assert one["coxswain_model_wanted_servers", "tiny"] == 1
    assert one["coxswain_requests_total", "standard", "served"] == 2
    other = metrics_of(SteeredFleet())
    other.restore(kept)
    assert other.outcomes() == {"served": 2}
    older = [((how, criticality), count) for (how, criticality, _), count in kept[0]]
    other.restore((older, kept[1]))
    assert other.outcomes() == {"served": 4}
