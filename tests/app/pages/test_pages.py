"""Claims about extproc/app/pages/pages.py: what a started service tells over HTTP, and
a position by the request's id."""

from __future__ import annotations

from typing import cast

import grpc
import httpx

from extproc.app.pages.pages import queue_position, shown_endpoints
from extproc.app.service import Service
from extproc.cli.output import plain
from extproc.core.address import Address
from extproc.core.decision import Queued
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.request import Request
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.settings import Settings
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream
from tests.fakes.processes import some_processes
from tests.fakes.small_fleet import SmallFleet


async def test_status_of_a_service_without_endpoints() -> None:
    """Who it is, since when, why it is not ready, and that nothing has happened yet."""
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    service = Service(Settings.model_validate({"listen": anywhere}))
    await service.start()
    try:
        url = f"http://127.0.0.1:{service.http_port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            status = (await client.get("/status")).json()
            assert (await client.get("/")).status_code == 200
    finally:
        await service.stop()
    assert status["not_ready"] == ["there are no endpoints"]
    assert status["problems"] == []
    assert status["version"] and status["uptime_s"] >= 0
    assert status["outcomes"] == {} and status["endpoints"] == []
    assert status["slots"] == dict.fromkeys(
        ("total", "leased", "draining", "foreign", "idle", "unusable"), 0
    )
    assert status["processes"] is None


async def test_status_and_metrics_with_processes() -> None:
    """What stands beside this process is shown, and counted only there."""
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    for processes in (some_processes, None):
        service = Service(Settings.model_validate({"listen": anywhere}), processes=processes)
        await service.start()
        try:
            url = f"http://127.0.0.1:{service.http_port}"
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                status = (await client.get("/status")).json()
                metrics = (await client.get("/metrics")).text.splitlines()
        finally:
            await service.stop()
        assert (status["processes"] or {}).get("fronts") == (processes and 2)
        assert ('coxswain_takeovers_total{reason="hung"} 1' in metrics) is bool(processes)
        assert any("coxswain_processes" in line for line in metrics) is bool(processes)


async def test_the_command_line_prints_what_the_page_prints() -> None:
    """By the same names, with the same values; only time goes on."""
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    made_of = {"listen": anywhere, "endpoints": ["127.0.0.1:1", "127.0.0.1:2"]}
    service = Service(Settings.model_validate({**made_of, "drain_timeout_s": 0.0}))
    await service.start()
    try:
        url = f"http://127.0.0.1:{service.http_port}"
        async with (
            httpx.AsyncClient(base_url=url, trust_env=False) as client,
            grpc.aio.insecure_channel(f"127.0.0.1:{service.admin_port}") as channel,
        ):
            page = (await client.get("/status")).json()
            admin = AdminStub(channel)
            status = plain(await admin.GetStatus(pb.GetStatusRequest()))
            listed = plain(await admin.ListEndpoints(pb.ListEndpointsRequest()))["endpoints"]
    finally:
        await service.stop()
    shown = page.pop("endpoints")
    assert page.pop("uptime_s") <= status.pop("uptime_s")
    assert page.keys() == status.keys()
    assert [one.keys() for one in shown] == [one.keys() for one in listed]
    assert [one["address"] for one in shown] == [one["address"] for one in listed]
    for name in ("version", "is_ready", "slots", "queue", "scale", "takes_actions"):
        assert page[name] == status[name]


def test_a_large_fleet_may_be_limited() -> None:
    """Those with issues or down come first, and a named one comes with them."""
    fleet = SmallFleet(2, 2, 2, 2)
    first, second, third, fourth = fleet.addresses
    fleet.dispatcher.connect_failed(third, fleet.now)

    def shown(limit: int | None, named: str = "") -> list[Address]:
        return [one.address for one in shown_endpoints(fleet.dispatcher.fleet, limit, named)]

    assert shown(None) == shown(4) == [first, second, third, fourth]
    assert shown(2) == [third, first]
    assert shown(1, str(fourth)) == [third, fourth]
    assert shown(1, str(third)) == [third]
    assert shown(0, "no-such-name") == []


def test_place_by_request_id() -> None:
    """A queued request has its place, of how many, and how long it has waited; others have none."""
    fleet, pending = SmallFleet(1), PendingStreams()
    fleet.pick()
    for name in ("first", "second", "third"):
        request = Request(id=name, timeout_s=60.0, weight_slots=1)
        outcome = fleet.dispatcher.submit(request, fleet.now)
        assert isinstance(outcome, Queued)
        pending.enter(cast("RunningStream", None), outcome.ticket)
    second = queue_position(fleet.dispatcher, pending, "second", fleet.now)
    assert second is not None
    assert (second.position, second.queued, second.expected_s) == (2, 3, None)
    assert second.order is None
    assert second.waited_s >= 0
    assert queue_position(fleet.dispatcher, pending, "nobody", fleet.now) is None


def test_the_order_by_size_is_reported() -> None:
    """A client that counts down must know that others may still pass it."""
    order = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED)
    fleet, pending = SmallFleet(1, order=order), PendingStreams()
    fleet.pick()
    outcome = fleet.dispatcher.submit(Request(id="one", timeout_s=60.0), fleet.now)
    assert isinstance(outcome, Queued)
    pending.enter(cast("RunningStream", None), outcome.ticket)
    position = queue_position(fleet.dispatcher, pending, "one", fleet.now)
    assert position is not None and position.order == "shortest_expected"
    assert position.as_json()["order"] == "shortest_expected"
