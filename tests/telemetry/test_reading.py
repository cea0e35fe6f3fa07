"""Claims about extproc/telemetry/reading.py."""

from __future__ import annotations

import dataclasses

from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions, Bounds
from extproc.telemetry import definitions
from extproc.telemetry.reading import read_bounds, read_processes, read_usage
from extproc.usage.counts import UsageCounts, UsageKey
from tests.fakes.processes import some_cluster, some_processes
from tests.telemetry.families import CLUSTER_FAMILIES, PROCESS_FAMILIES, USAGE_FAMILIES


def test_each_role_and_each_reason_is_a_sample() -> None:
    found = read_processes(some_processes())
    assert set(found) == set(PROCESS_FAMILIES)
    assert found == {
        definitions.PROCESSES: {("core",): 1, ("spare",): 0, ("front",): 2, ("starting",): 1},
        definitions.TAKEOVERS: {("ended",): 2, ("hung",): 1, ("left",): 0, ("member",): 0},
        definitions.FRONT_CALLS: {("1",): 7, ("2",): 5},
    }


def test_a_cluster_is_as_this_member_sees_it() -> None:
    processes = dataclasses.replace(some_processes(), cluster=some_cluster())
    found = read_processes(processes)
    assert set(found) == {*PROCESS_FAMILIES, *CLUSTER_FAMILIES}
    assert found[definitions.LEADER] == {(): 1}
    assert found[definitions.CLUSTER_MEMBERS] == {(): 2}
    assert found[definitions.CLUSTER_EPOCH] == {(): 7}
    assert found[definitions.ENGINE_UP] == {(): 0}


def test_before_anything_is_known_the_counters_are_there() -> None:
    """An alert about an increase needs the sample before it."""
    nothing = dataclasses.replace(some_processes(), members=(), takeovers={})
    found = read_processes(nothing)
    assert set(found[definitions.TAKEOVERS].values()) == {0}
    assert set(found[definitions.PROCESSES].values()) == {0}
    assert found[definitions.FRONT_CALLS] == {}


def test_each_count_is_a_sample() -> None:
    counts = UsageCounts(
        requests=5,
        rejected=2,
        uncounted=1,
        prompt_tokens=30,
        cached_tokens=10,
        generated_tokens=40,
        slot_s=1.5,
        cost=0.25,
    )
    key = UsageKey("web", "chat", "tiny")
    found = read_usage({key: counts})
    assert set(found) == set(USAGE_FAMILIES)
    assert found == {
        definitions.USAGE_REQUESTS: {
            (*key, "counted"): 4,
            (*key, "uncounted"): 1,
            (*key, "rejected"): 2,
        },
        definitions.USAGE_TOKENS: {
            (*key, "prompt"): 30,
            (*key, "cached"): 10,
            (*key, "generated"): 40,
        },
        definitions.USAGE_SLOT_SECONDS: {tuple(key): 1.5},
        definitions.USAGE_COST: {("web", "chat", "tiny", "1"): 0.25},
    }


def test_a_bound_has_counts_and_the_limits_that_are_set() -> None:
    """A request under several counts in each."""
    limits = {
        (BoundKind.MODEL, "tiny"): BoundLimits(running=2),
        (BoundKind.PATH, "/completion"): BoundLimits(running=1, queued=0),
    }
    bounds = Bounds(BoundOptions(limits=limits))
    for bound in bounds:
        bound.request_began()
    assert read_bounds(bounds) == {
        definitions.BOUND_REQUESTS: {
            ("model", "tiny", "running"): 1,
            ("model", "tiny", "queued"): 0,
            ("path", "/completion", "running"): 1,
            ("path", "/completion", "queued"): 0,
        },
        definitions.BOUND_LIMIT: {
            ("model", "tiny", "running"): 2,
            ("path", "/completion", "running"): 1,
            ("path", "/completion", "queued"): 0,
        },
    }
