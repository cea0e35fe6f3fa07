"""Claims about extproc/envoy_config/bootstrap.py."""

from __future__ import annotations

from extproc.envoy_config.bootstrap import overload_manager
from tests.envoy_config.parts import plain, whole
from tests.fakes.envoy_text import options_with


def test_near_the_heaps_bound_new_work_is_rejected_and_memory_given_back() -> None:
    """Memory is given back first."""
    found = plain(overload_manager(options_with(max_heap_bytes=1000, max_connections=7)))
    bounds = {
        each["name"].rpartition(".")[2]: each["typed_config"] for each in found["resource_monitors"]
    }
    assert int(bounds["fixed_heap"]["max_heap_size_bytes"]) == 1000
    connections = bounds["global_downstream_max_connections"]
    assert int(connections["max_active_downstream_connections"]) == 7
    shares = {
        action["name"].rpartition(".")[2]: action["triggers"][0]["threshold"]["value"]
        for action in found["actions"]
    }
    assert shares["shrink_heap"] < shares["stop_accepting_requests"] < 1


def test_without_a_bound_for_the_heap_connections_are_bounded_still() -> None:
    found = plain(overload_manager(options_with(max_heap_bytes=0)))
    assert len(found["resource_monitors"]) == 1 and not found.get("actions")


def test_operators_get_in_also_when_it_is_full() -> None:
    """The admin port does not count against the connections."""
    assert whole()["admin"]["ignore_global_conn_limit"] is True
