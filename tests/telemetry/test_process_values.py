"""Claims about extproc/telemetry/process_values.py."""

from __future__ import annotations

import dataclasses

from extproc.telemetry import definitions
from extproc.telemetry.process_values import read_processes
from tests.fakes.processes import some_cluster, some_processes


def test_each_role_and_each_reason_is_a_sample() -> None:
    found = read_processes(some_processes())
    assert set(found) == set(definitions.PROCESS_FAMILIES)
    assert found == {
        definitions.PROCESSES: {("core",): 1, ("spare",): 0, ("front",): 2, ("starting",): 1},
        definitions.TAKEOVERS: {("ended",): 2, ("hung",): 1, ("left",): 0, ("member",): 0},
        definitions.FRONT_CALLS: {("1",): 7, ("2",): 5},
    }


def test_a_cluster_is_as_this_member_sees_it() -> None:
    processes = dataclasses.replace(some_processes(), cluster=some_cluster())
    found = read_processes(processes)
    assert set(found) == {*definitions.PROCESS_FAMILIES, *definitions.CLUSTER_FAMILIES}
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
