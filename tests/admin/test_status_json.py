"""Claims about extproc/admin/status_json.py, endpoint_json.py and placement_json.py: what they show
of a real core, and that messages and `/status` are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from extproc.admin.calls.endpoints import EndpointCalls
from extproc.admin.calls.models import ModelCalls
from extproc.admin.calls.scale import ScaleCalls
from extproc.admin.calls.status import StatusCalls
from extproc.admin.dependencies import AdminDependencies
from extproc.admin.endpoint_json import endpoint_json
from extproc.admin.placement_json import machines_json, models_json
from extproc.admin.status_json import status_json
from extproc.cli.output import plain
from extproc.core.address import Address
from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec, Intent
from extproc.core.fleet.health import Health
from extproc.core.fleet.membership import ConnectedEnvoy
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.placement.machine import KeptState
from extproc.core.processes import Processes
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import json_text
from tests.core.placement.simulated import machine, set_state
from tests.fakes.admin_dependencies import admin_dependencies
from tests.fakes.processes import some_cluster, some_processes
from tests.fakes.small_fleet import ONE as ADDRESS
from tests.fakes.small_fleet import dispatcher_of_one
from tests.fakes.steered_fleet import SteeredFleet


def status(dispatcher: Dispatcher, now: float = 3.0, **others: Any) -> dict[str, Any]:
    return status_json(admin_dependencies(dispatcher, lambda: now, **others))


def shown(dispatcher: Dispatcher, address: Address = ADDRESS, now: float = 3.0) -> dict[str, Any]:
    endpoint = dispatcher.fleet.get(address)
    assert endpoint is not None
    return endpoint_json(dispatcher, endpoint, now)


def test_picture_of_one_endpoint() -> None:
    """Its slots, health, models, age and issues, and the sums of all."""
    dispatcher = dispatcher_of_one(busy_slots=1)
    dispatcher.submit(Request(id="a", timeout_s=9), 1.5)
    dispatcher.submit(Request(id="b", timeout_s=9), 1.5)
    envoys = [
        ConnectedEnvoy(node_id="envoy-1", acknowledged_version=1),
        ConnectedEnvoy(node_id="envoy-2", acknowledged_version=-1),
    ]
    tree = status(dispatcher, envoys=lambda: envoys, outcomes=lambda: {"served": 7})
    endpoint = shown(dispatcher)
    assert endpoint["slots"] == {
        "total": 2,
        "leased": 1,
        "draining": 0,
        "foreign": 1,
        "idle": 0,
        "unusable": 0,
    }
    assert (endpoint["address"], endpoint["name"]) == ("10.0.0.1:8080", "gpu-1")
    assert (endpoint["health"], endpoint["intent"]) == ("degraded", "active")
    assert [model["name"] for model in endpoint["models"]] == ["tiny"]
    assert endpoint["observed_age_s"] == 2.0 and endpoint["leases"] == 1
    assert endpoint["issues"] == [{"code": "slow", "message": "it is slow", "remedy": "wait"}]
    assert tree["slots"] == endpoint["slots"]
    assert tree["endpoints_by_health"] == {"degraded": 1}
    assert tree["endpoints_by_intent"] == {"active": 1}
    assert tree["running"] == 1
    assert tree["queue"] == {
        "queued": 1,
        "max_requests": 1024,
        "body_bytes": 0,
        "max_body_bytes": 1024**3,
        "by_criticality": {"critical": 0, "standard": 1, "sheddable": 0},
        "longest_wait_s": 1.5,
        "expected_s": None,
        "models": [
            {"model": "", "queued": 1, "by_reason": {"no-idle-slot": 1}, "idle_slots": 0},
            {"model": "tiny", "queued": 0, "by_reason": {}, "idle_slots": 0},
        ],
        "bounds": [],
        "idle_note": "",
        "order": "",
        "max_overtaken_s": None,
    }
    (scale,) = tree["scale"]
    assert (scale["model"], scale["wanted"], scale["servers"]) == ("tiny", 1, 1)
    assert (scale["cause"], scale["queued_slots"], scale["busy_slots"]) == ("unknown", 1, 2)
    assert (scale["service_s"], scale["slots"]) == (None, 2.0)
    assert tree["outcomes"] == {"served": 7}
    assert tree["envoys"] == [
        {"node_id": "envoy-1", "acknowledged_version": 1},
        {"node_id": "envoy-2", "acknowledged_version": None},
    ]


def test_free_slots_of_a_disabled_endpoint_are_not_idle() -> None:
    """Nobody can have them: they are counted apart, for it and in the sum."""
    dispatcher = dispatcher_of_one(busy_slots=1)
    dispatcher.set_intent(ADDRESS, Intent.DISABLED, 2.0)
    tree = status(dispatcher)
    assert (tree["slots"]["idle"], tree["slots"]["unusable"]) == (0, 1)
    assert tree["slots"] == shown(dispatcher)["slots"]


def test_unseen_endpoint_has_no_age() -> None:
    """An endpoint that was never looked at has no observation age."""
    assert shown(dispatcher_of_one())["observed_age_s"] is None


def test_a_server_that_is_down_gets_no_requests_though_envoy_knows_it() -> None:
    """Two words for two things: neither says of a dead server that requests are routed to it."""
    dispatcher = dispatcher_of_one(busy_slots=0)
    found = []
    for health in (Health.READY, Health.DOWN):
        endpoint = dispatcher.fleet.get(ADDRESS)
        assert endpoint is not None
        endpoint.health = health
        found.append(shown(dispatcher))
    assert [each["is_pickable"] for each in found] == [True, False]
    assert all(each["is_known_to_envoy"] and "is_routable" not in each for each in found)


def test_the_order_is_reported_where_it_is_not_that_of_arrival() -> None:
    order = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED, max_overtaken_s=20.0)
    by_size = Dispatcher(Random(1), DispatcherOptions(order=order))
    plain_order, reported = (status(one)["queue"] for one in (Dispatcher(Random(1)), by_size))
    assert reported == {**plain_order, "order": "shortest_expected", "max_overtaken_s": 20.0}


def test_labels_and_bounds_are_shown() -> None:
    dispatcher = dispatcher_of_one(busy_slots=0)
    labelled = EndpointSpec(address=ADDRESS, labels=(("region", "eu"),))
    dispatcher.set_members("test", [labelled], 1.0)
    limits = {(BoundKind.MODEL, "tiny"): BoundLimits(running=1, is_last_come=True)}
    options = replace(dispatcher.options, bounds=BoundOptions(limits=limits))
    dispatcher.renew(options, 1.0)
    dispatcher.submit(Request(id="a", timeout_s=9, model="tiny"), 1.5)
    dispatcher.submit(Request(id="b", timeout_s=9, model="tiny"), 1.5)
    assert shown(dispatcher)["labels"] == {"region": "eu"}
    queue = status(dispatcher)["queue"]
    assert queue["bounds"] == [
        {
            "kind": "model",
            "name": "tiny",
            "running": 1,
            "max_running": 1,
            "queued": 1,
            "max_queued": None,
            "queue_timeout_s": None,
            "is_lifo": True,
        }
    ]
    assert queue["models"][0]["by_reason"] == {"bound-reached": 1}


def test_the_log_of_a_server_is_for_operators_alone() -> None:
    """`/status` is open to who reaches its port; `ListModels` takes the operators' token."""
    dependencies = everything()
    (status_model, _) = status_json(dependencies)["models"]
    (listed, _) = models_json(dependencies, 9.0)
    assert (status_model["detail"], listed["detail"]) == ("", "a line of its log")
    assert status_model["problem"] == listed["problem"] == "it ended"


def everything(*, has_processes: bool = True) -> AdminDependencies:
    """A picker with each part that a status may have."""
    order = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED, max_overtaken_s=20.0)
    resolver = ResolverOptions(pools={"chat": ResolverOptions()})
    limits = {(BoundKind.MODEL, "tiny"): BoundLimits(running=1, queued=2, is_last_come=True)}
    dispatcher = dispatcher_of_one(busy_slots=1)
    dispatcher.renew(
        replace(
            dispatcher.options, order=order, resolver=resolver, bounds=BoundOptions(limits=limits)
        ),
        1.0,
    )
    near = EndpointSpec(
        address=ADDRESS, name="gpu-1", hostname="gpu-1.lan", labels=(("a", "b"),), pool="chat"
    )
    far = EndpointSpec(address=Address("10.9.0.1", 443), tier=2, pool="chat")
    dispatcher.set_members("test", [near, far], 1.0)
    dispatcher.set_intent(ADDRESS, Intent.DRAINING, 1.5)
    for name in "ab":
        dispatcher.submit(Request(id=name, timeout_s=9, model="tiny", pool="chat"), 1.5)

    def processes() -> Processes:
        return replace(some_processes(), cluster=some_cluster())

    dependencies = admin_dependencies(
        dispatcher,
        lambda: 3.25,
        envoys=lambda: [ConnectedEnvoy(node_id="envoy-1", acknowledged_version=-1)],
        obstacles=lambda: ("it starts", "it has no endpoints"),
        problems=lambda: ("a file cannot be read",),
        outcomes=lambda: {"served": 2**40},
        bypassed=lambda: 3,
        takes_actions=lambda: True,
        processes=processes if has_processes else None,
    )
    kept = replace(machine("gpu-1", 10, a=10, b=5), pool="chat", version="1.2")
    dependencies.placement.machines["gpu-1"] = kept  # type: ignore[index]  # it is a dict
    set_state(
        kept, "a", KeptState.FAILED, 2.0, load_s=3.5, problem="it ended", detail="a line of its log"
    )
    return dependencies


def shared() -> AdminDependencies:
    """Slots that share a context, and a queue."""
    fleet = SteeredFleet(context=ContextSharing.SHARED)
    fleet.add(4, context_tokens=1024)
    return admin_dependencies(fleet.dispatcher, lambda: fleet.now + 1.5)


def test_a_shared_context_is_shown() -> None:
    dependencies = shared()
    (endpoint,) = dependencies.dispatcher.fleet
    assert endpoint_json(dependencies.dispatcher, endpoint, 101.0)["tokens"] == {
        "total": 1024,
        "held": 0,
        "reserved": 0,
        "free": 992,
        "source": "setting",
    }


@pytest.mark.parametrize(
    "make",
    [
        everything,
        partial(everything, has_processes=False),
        shared,
        lambda: admin_dependencies(Dispatcher(Random(1)), lambda: 1.0),
    ],
    ids=["everything", "one-process", "shared-context", "empty"],
)
async def test_a_message_and_the_page_are_the_same(make: Callable[[], AdminDependencies]) -> None:
    """What `-o json` prints of each message is what `/status` prints: each field, by the same name,
    with the same value, and none besides."""
    no_context: Any = None
    dependencies = make()
    now, dispatcher = dependencies.clock(), dependencies.dispatcher
    found = await StatusCalls(dependencies).GetStatus(pb.GetStatusRequest(), no_context)
    tree = json.loads(json_text(status_json(dependencies)))
    assert plain(found) == tree
    listed = await EndpointCalls(dependencies).ListEndpoints(pb.ListEndpointsRequest(), no_context)
    fleet = [endpoint_json(dispatcher, one, now) for one in dispatcher.fleet]
    assert plain(listed)["endpoints"] == json.loads(json_text(fleet))
    placed = plain(await ModelCalls(dependencies).ListModels(pb.ListModelsRequest(), no_context))
    assert placed["machines"] == tree["machines"] == machines_json(dependencies)
    assert [one | {"detail": ""} for one in placed["models"]] == tree["models"]
    scale = await ScaleCalls(dependencies).ListScale(pb.ListScaleRequest(), no_context)
    assert plain(scale)["models"] == tree["scale"]
