"""Claims about extproc/admin/calls/watch.py and endpoint_broadcaster.py, through real clients."""

from __future__ import annotations

import asyncio
import random
import time
from itertools import count

import grpc
import pytest

from extproc.admin import endpoint_broadcaster
from extproc.admin.endpoint_broadcaster import EndpointBroadcaster, Watcher
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.picker import FakePicker, rest_of, until

NAME = "compare the fleet"
A, B = "10.0.0.1:8080", "10.0.0.2:8080"
Watch = grpc.aio.UnaryStreamCall[pb.WatchEndpointsRequest, pb.WatchEndpointsResponse]


class Snapshot:
    """What one watcher knows by now."""

    def __init__(self, picker: FakePicker) -> None:
        self.call: Watch = picker.admin.WatchEndpoints(pb.WatchEndpointsRequest())
        self.endpoints: dict[str, pb.Endpoint] = {}
        self.messages = 0

    async def next(self) -> pb.WatchEndpointsResponse:
        message = await self.call.read()
        assert isinstance(message, pb.WatchEndpointsResponse)
        self.messages += 1
        for endpoint in message.changed:
            self.endpoints[endpoint.address] = endpoint
        for address in message.removed:
            del self.endpoints[address]
        return message

    async def snapshot(self) -> None:
        while not (await self.next()).is_snapshot_complete:
            pass


async def test_snapshot_then_changes(picker: FakePicker) -> None:
    """First everything, then what changes: appears, moves, leaves. Nothing twice."""
    picker.add_ready(A, slots=2)
    snapshot = Snapshot(picker)
    await snapshot.snapshot()
    assert set(snapshot.endpoints) == {A}
    call = await picker.ask("r1")
    await snapshot.next()
    assert snapshot.endpoints[A].slots.leased == 1
    await picker.admin.AddEndpoint(pb.AddEndpointRequest(address=B))
    assert [endpoint.address for endpoint in (await snapshot.next()).changed] == [B]
    await picker.admin.RemoveEndpoint(pb.RemoveEndpointRequest(address=B))
    assert list((await snapshot.next()).removed) == [B]
    call.cancel()
    snapshot.call.cancel()


async def test_a_name_that_another_endpoint_takes_is_no_longer_unique(picker: FakePicker) -> None:
    """Nothing else of the first one changes, and it is sent again."""
    picker.add_ready(A, name="gpu-1")
    snapshot = Snapshot(picker)
    await snapshot.snapshot()
    assert snapshot.endpoints[A].unique_name == "gpu-1"
    picker.name(*known(picker), EndpointSpec(address=Address.parse(B), name="gpu-1"))
    while snapshot.endpoints[A].unique_name != A:
        await snapshot.next()
    snapshot.call.cancel()


async def test_empty_fleet_has_a_snapshot_too(picker: FakePicker) -> None:
    """A watcher of nothing is told that this is all."""
    snapshot = Snapshot(picker)
    assert (await snapshot.next()).is_snapshot_complete
    snapshot.call.cancel()


async def test_large_fleet_comes_in_parts(picker: FakePicker) -> None:
    """No message grows with the fleet; only the last part completes the snapshot."""
    specs = [EndpointSpec(address=Address.of("10.0.0.1", port)) for port in range(1, 1202)]
    picker.name(*specs)
    snapshot = Snapshot(picker)
    await snapshot.snapshot()
    assert snapshot.messages == 3 and len(snapshot.endpoints) == 1201
    snapshot.call.cancel()


async def test_fifty_watchers_see_every_final_state(picker: FakePicker) -> None:
    """While a hundred things change, fifty watchers arrive at the truth, each of them."""
    addresses = [f"10.0.0.{host}:8080" for host in range(1, 11)]
    for address in addresses:
        picker.add_ready(address, slots=100)
    snapshots = [Snapshot(picker) for _ in range(50)]
    await asyncio.gather(*(snapshot.snapshot() for snapshot in snapshots))
    chance = random.Random(7)
    final = {}
    for _ in range(100):
        address = chance.choice(addresses)
        final[address] = chance.randrange(100)
        picker.observe(address, slots=100, busy_slots=final[address])
        await asyncio.sleep(0)

    async def arrive(snapshot: Snapshot) -> None:
        while any(snapshot.endpoints[a].slots.foreign != busy for a, busy in final.items()):
            await snapshot.next()

    await asyncio.gather(*(arrive(snapshot) for snapshot in snapshots))
    for snapshot in snapshots:
        snapshot.call.cancel()


async def test_nothing_runs_without_watchers(picker: FakePicker) -> None:
    """When the last watcher left, nothing compares the fleet any more."""
    snapshot = Snapshot(picker)
    await snapshot.snapshot()
    snapshot.call.cancel()
    await until(lambda: not any(NAME in task.get_name() for task in asyncio.all_tasks()))


async def test_a_slow_watcher_keeps_only_final_states(picker: FakePicker) -> None:
    """However much changes, what a watcher was not told is one state for each endpoint."""
    picker.add_ready(A, slots=100)
    board = EndpointBroadcaster(picker.dispatcher, time.monotonic, interval_s=3600)
    with board.watch() as watcher:
        watcher.take(10)
        for busy in range(100):
            picker.observe(A, slots=100, busy_slots=busy)
            board.compare()
        for port in range(1, 200):  # comes and goes unseen
            picker.name(*known(picker), EndpointSpec(address=Address.of("10.1.0.1", port)))
            board.compare()
            picker.name(*known(picker)[:1])
            board.compare()
        assert len(watcher.pending) == 1
        ((_, message),) = watcher.take(10)
        assert message is not None and message.slots.foreign == 99


async def test_a_stall_while_comparing_delays_no_later_change(picker: FakePicker) -> None:
    """Only the work of a scrape counts for when the next one is, not how long it took."""
    scrapes = count()
    scraped: list[int] = []

    def clock() -> float:
        """Each look is an hour after the one before."""
        scraped.append(next(scrapes))
        return 3600.0 * scraped[-1]

    with EndpointBroadcaster(picker.dispatcher, clock, interval_s=0.001).watch():
        await until(lambda: len(scraped) > 10)


def known(picker: FakePicker) -> list[EndpointSpec]:
    return list(picker.dispatcher.fleet.specs_of("settings").values())


def test_watcher_forgets_what_was_never_reported() -> None:
    """An endpoint that came and went between two messages is none of its business."""
    watcher, address = Watcher(), Address.parse(A)
    watcher.note(address, pb.Endpoint())
    watcher.note(address, None)
    assert not watcher.pending
    watcher.note(address, pb.Endpoint())
    watcher.take(1)
    watcher.note(address, None)
    assert watcher.take(1) == [(address, None)]


async def test_too_many_watchers(picker: FakePicker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a watcher is rejected, and told what to do."""
    monkeypatch.setattr(endpoint_broadcaster, "MAX_WATCHERS", 1)
    snapshot = Snapshot(picker)
    await snapshot.snapshot()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await Snapshot(picker).next()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    snapshot.call.cancel()


async def test_drain_reports_its_progress(picker: FakePicker) -> None:
    """From the first count to none; then the stream ends and the endpoint stays draining."""
    picker.add_ready(A, slots=2)
    calls = [await picker.ask("r1"), await picker.ask("r2")]
    drain = picker.admin.Drain(pb.DrainRequest(address=A))
    first = await drain.read()
    assert isinstance(first, pb.DrainResponse)
    assert (first.state, first.running) == (pb.DrainResponse.STATE_DRAINING, 2)
    for call in calls:
        call.cancel()
    # Their clients left: the server is seen to have let go of them.
    await until_left(picker, 2)
    picker.observe(A, slots=2, busy_slots=0)
    last = (await rest_of(drain))[-1]
    assert (last.state, last.running) == (pb.DrainResponse.STATE_DRAINED, 0)
    assert last.running_at_start == 2
    endpoint = picker.dispatcher.fleet.get(Address.parse(A))
    assert endpoint is not None and endpoint.intent is Intent.DRAINING


async def until_left(picker: FakePicker, many: int) -> None:
    account = picker.dispatcher.ledger.endpoint_slots(Address.parse(A))
    await until(lambda: sum(lease.left_at is not None for lease in account.leases.values()) == many)


async def test_drain_of_an_idle_endpoint_is_done_at_once(picker: FakePicker) -> None:
    """One message, which says so."""
    picker.add_ready(A)
    messages = [message async for message in picker.admin.Drain(pb.DrainRequest(address=A))]
    assert [message.state for message in messages] == [pb.DrainResponse.STATE_DRAINED]


async def test_drain_stops_reporting_at_its_deadline(picker: FakePicker) -> None:
    """The request runs on, the endpoint stays draining, and the last message says it."""
    picker.add_ready(A)
    call = await picker.ask("r1")
    drain = picker.admin.Drain(pb.DrainRequest(address=A, deadline_s=0.05))
    messages = [message async for message in drain]
    assert messages[-1].state == pb.DrainResponse.STATE_DEADLINE_PASSED
    assert messages[-1].running == 1
    call.cancel()


async def test_drain_called_off(picker: FakePicker) -> None:
    """Who drains hears that somebody wants the endpoint back."""
    picker.add_ready(A)
    call = await picker.ask("r1")
    drain = picker.admin.Drain(pb.DrainRequest(address=A))
    await drain.read()
    await picker.admin.Activate(pb.ActivateRequest(address=A))
    last = (await rest_of(drain))[-1]
    assert last.state == pb.DrainResponse.STATE_CALLED_OFF
    call.cancel()


@pytest.mark.parametrize("deadline_s", [-1.0, float("nan"), float("inf"), 1e300])
async def test_drain_rejects_odd_deadlines(picker: FakePicker, deadline_s: float) -> None:
    """And nothing is drained by such a call."""
    picker.add_ready(A)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await picker.admin.Drain(pb.DrainRequest(address=A, deadline_s=deadline_s)).read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    endpoint = picker.dispatcher.fleet.get(Address.parse(A))
    assert endpoint is not None and endpoint.intent is Intent.ACTIVE
