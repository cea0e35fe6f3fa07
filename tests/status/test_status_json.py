"""Claims about extproc/status/status_json.py and readiness.py, on a real core."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

from extproc.core.address import Address
from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec, Intent
from extproc.core.fleet.health import Health
from extproc.core.fleet.membership import ConnectedEnvoy
from extproc.core.observation import Issue, ModelReading, Observation, ScrapeStatus
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.status import why_not_ready
from extproc.status.status_json import status_json
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet

ADDRESS = Address("10.0.0.1", 8080)


def dispatcher_with(*, busy_slots: int | None = None) -> Dispatcher:
    """One endpoint of two slots, looked at when `busy_slots` are told."""
    dispatcher = Dispatcher(Random(1))
    dispatcher.set_members("test", [EndpointSpec(address=ADDRESS, name="gpu-1")], 0.0)
    if busy_slots is not None:
        dispatcher.observe(
            Observation(
                address=ADDRESS,
                began_at=1.0,
                answered_at=1.0,
                status=ScrapeStatus.READY,
                slots=2,
                busy_slots=busy_slots,
                models=(ModelReading(name="tiny"),),
                issues=(Issue(code="slow", message="it is slow", remedy="wait"),),
            ),
            1.0,
        )
    return dispatcher


def test_picture_of_one_endpoint() -> None:
    """Slots, health, models, age and issues of an endpoint stand under its address."""
    dispatcher = dispatcher_with(busy_slots=1)
    dispatcher.submit(Request(id="a", timeout_s=9), 1.5)
    dispatcher.submit(Request(id="b", timeout_s=9), 1.5)
    envoys = [
        ConnectedEnvoy(node_id="envoy-1", acknowledged_version=1),
        ConnectedEnvoy(node_id="envoy-2", acknowledged_version=-1),
    ]
    tree = status_json(dispatcher, exchanges=5, envoys=envoys, outcomes={"served": 7}, now=3.0)
    endpoint = tree["endpoints"]["10.0.0.1:8080"]
    assert endpoint["slots"] == {
        "total": 2,
        "leased": 1,
        "draining": 0,
        "foreign": 1,
        "idle": 0,
        "unusable": 0,
    }
    assert (endpoint["name"], endpoint["health"], endpoint["intent"]) == (
        "gpu-1",
        "degraded",
        "active",
    )
    assert endpoint["models"] == ["tiny"] and endpoint["observed_age_s"] == 2.0
    assert endpoint["issues"] == [{"code": "slow", "message": "it is slow", "remedy": "wait"}]
    assert tree["slots"] == endpoint["slots"]
    assert (tree["running"], tree["exchanges"]) == (1, 5), "some are read, or take no slot"
    assert tree["queue"] == {
        "queued": 1,
        "max_requests": 1024,
        "body_bytes": 0,
        "max_body_bytes": 1024**3,
        "by_criticality": {"critical": 0, "standard": 1, "sheddable": 0},
        "longest_wait_s": 1.5,
        "expected_s": None,
        "by_model": {
            "tiny": {"queued": 0, "by_reason": {}, "idle_slots": 0},
            "": {"queued": 1, "by_reason": {"no-idle-slot": 1}, "idle_slots": 0},
        },
        "bounds": [],
        "idle_note": "",
    }
    assert tree["scale"]["tiny"] == {
        "wanted": 1,
        "servers": 1,
        "cause": "unknown",
        "queued_slots": 1,
        "busy_slots": 2,
        "arrivals_per_s": 0.033,
        "service_s": None,
        "slots": 2.0,
    }
    assert tree["outcomes"] == {"served": 7}
    assert tree["envoys"] == [
        {"node_id": "envoy-1", "acknowledged_version": 1},
        {"node_id": "envoy-2", "acknowledged_version": None},
    ]
    json.dumps(tree)


def test_a_shared_context_is_shown() -> None:
    fleet = SteeredFleet(context=ContextSharing.SHARED)
    shared = fleet.add(4, context_tokens=1024)
    tree = status_json(fleet.dispatcher, exchanges=0, envoys=[], outcomes={}, now=fleet.now)
    assert tree["endpoints"][str(shared)]["tokens"] == {
        "total": 1024,
        "held": 0,
        "reserved": 0,
        "free": 992,
        "source": "setting",
    }


def test_free_slots_of_a_disabled_endpoint_are_not_idle() -> None:
    """Nobody can have them: they are told apart, for it and in the sum."""
    dispatcher = dispatcher_with(busy_slots=1)
    dispatcher.set_intent(ADDRESS, Intent.DISABLED, 2.0)
    tree = status_json(dispatcher, exchanges=0, envoys=(), outcomes={}, now=3.0)
    assert (tree["slots"]["idle"], tree["slots"]["unusable"]) == (0, 1)
    assert tree["slots"] == tree["endpoints"]["10.0.0.1:8080"]["slots"]


def test_unseen_endpoint_has_no_age() -> None:
    """An endpoint that was never looked at has no observation age."""
    tree = status_json(dispatcher_with(), exchanges=0, envoys=(), outcomes={}, now=3.0)
    assert tree["endpoints"]["10.0.0.1:8080"]["observed_age_s"] is None


def test_ready_with_one_endpoint_that_takes_requests() -> None:
    """One endpoint that may be picked is enough, also when all its slots are busy."""
    assert why_not_ready(dispatcher_with(busy_slots=2)) == ()


def test_reasons_name_the_endpoint_and_its_state() -> None:
    """Without one, each endpoint is named with what keeps requests from it."""
    assert why_not_ready(Dispatcher(Random(1))) == ("there are no endpoints",)
    assert why_not_ready(dispatcher_with())[1] == "10.0.0.1:8080 is loading"
    dispatcher = dispatcher_with(busy_slots=0)
    dispatcher.set_intent(ADDRESS, Intent.DISABLED, 2.0)
    assert why_not_ready(dispatcher)[1] == "10.0.0.1:8080 is disabled; it is slow"
    dispatcher.set_intent(ADDRESS, Intent.ACTIVE, 2.0)
    dispatcher.set_routable(ADDRESS, False, 2.0)
    assert "not published to Envoy yet" in why_not_ready(dispatcher)[1]


def test_many_endpoints_are_counted_not_named() -> None:
    """The page stays short, however large the fleet."""
    dispatcher = Dispatcher(Random(1))
    specs = [EndpointSpec(address=Address("10.0.0.2", port)) for port in range(1, 101)]
    dispatcher.set_members("test", specs, 0.0)
    reasons = why_not_ready(dispatcher)
    assert len(reasons) == 12 and reasons[-1] == "and 90 more"


def test_a_server_that_is_down_gets_no_requests_though_envoy_knows_it() -> None:
    """Two words for two things: neither says of a dead server that requests are routed to it."""
    dispatcher = dispatcher_with(busy_slots=0)
    told = []
    for health in (Health.READY, Health.DOWN):
        endpoint = dispatcher.fleet.get(ADDRESS)
        assert endpoint is not None
        endpoint.health = health
        tree = status_json(dispatcher, exchanges=0, envoys=[], outcomes={}, now=3.0)
        told.append(tree["endpoints"]["10.0.0.1:8080"])
    assert [each["is_pickable"] for each in told] == [True, False]
    assert all(each["is_known_to_envoy"] and "is_routable" not in each for each in told)


def test_the_order_is_reported_where_it_is_not_that_of_arrival() -> None:
    order = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED, max_overtaken_s=20.0)
    by_size = Dispatcher(Random(1), DispatcherOptions(order=order))
    queues = [
        status_json(one, exchanges=0, envoys=(), outcomes={}, now=1.0)["queue"]
        for one in (Dispatcher(Random(1)), by_size)
    ]
    assert queues[1] == {**queues[0], "order": "shortest_expected", "max_overtaken_s": 20.0}


def test_labels_and_bounds_are_shown_where_there_are_some() -> None:
    dispatcher = dispatcher_with(busy_slots=0)
    labelled = EndpointSpec(address=ADDRESS, labels=(("region", "eu"),))
    dispatcher.set_members("test", [labelled], 1.0)
    limits = {(BoundKind.MODEL, "tiny"): BoundLimits(running=1, is_last_come=True)}
    options = replace(dispatcher.options, bounds=BoundOptions(limits=limits))
    dispatcher.renew(options, 1.0)
    dispatcher.submit(Request(id="a", timeout_s=9, model="tiny"), 1.5)
    dispatcher.submit(Request(id="b", timeout_s=9, model="tiny"), 1.5)
    tree = status_json(dispatcher, exchanges=2, envoys=[], outcomes={}, now=3.0)
    assert tree["endpoints"][str(ADDRESS)]["labels"] == {"region": "eu"}
    assert tree["queue"]["bounds"] == [
        {
            "kind": "model",
            "name": "tiny",
            "running": 1,
            "max_running": 1,
            "queued": 1,
            "max_queued": None,
            "queue_timeout_s": None,
            "order": "lifo",
        }
    ]
    assert tree["queue"]["by_model"]["tiny"]["by_reason"] == {"bound-reached": 1}


def test_a_large_fleet_may_be_limited() -> None:
    """Those with issues or down come first, a named one comes with them, and counts are of all."""
    fleet = SmallFleet(2, 2, 2, 2)
    first, second, third, fourth = fleet.addresses
    fleet.dispatcher.connect_failed(third, fleet.now)

    def shown(limit: int | None, named: str = "") -> list[str]:
        tree = status_json(
            fleet.dispatcher,
            exchanges=0,
            envoys=(),
            outcomes={},
            now=fleet.now,
            limit=limit,
            named=named,
        )
        assert tree["slots"]["total"] == 8
        assert tree["endpoints_by_health"] == {"ready": 3, "down": 1}
        assert tree["endpoints_by_intent"] == {"active": 4}
        return list(tree["endpoints"])

    everything = [str(first), str(second), str(third), str(fourth)]
    assert shown(None) == shown(4) == everything
    assert shown(2) == [str(third), str(first)]
    assert shown(1, str(fourth)) == [str(third), str(fourth)]
    assert shown(1, str(third)) == [str(third)]
    assert shown(0, "no-such-name") == []
