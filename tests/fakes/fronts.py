"""Fronts and cores in one event loop: real links and exchanges, and calls moved by hand."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import cast

from extproc.core.address import Address
from extproc.processes.fronts.core_calls import CoreCalls
from extproc.processes.fronts.front_calls import FrontCalls, FrontOptions
from extproc.processes.fronts.lease_grant import LeaseGrant
from extproc.processes.fronts.link import Link, LinkOwner
from extproc.processes.fronts.network_frames import network_codec
from extproc.processes.fronts.resumption import Resumption
from extproc.stream.envoy import codec
from extproc.stream.envoy.codec import PROCESS
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.exchange_id import new_id
from extproc.transport import ServiceTable
from extproc.transport.long_wait import LONG, LONG_WAIT, waits_long
from tests.fakes import envoy_messages as envoy
from tests.fakes.continued import SINCE_1970_S, wall_time
from tests.fakes.envoy_stream import HandCall, Rig, eventually
from tests.fakes.small_fleet import SmallFleet

LINKS: list[Link] = []
"""Of the present test, which ends them."""
OTHER = "/other.Service/Stream"


class FakeCore:
    """A core with endpoints of its own; it leads when it is opened. All share one clock."""

    def __init__(
        self,
        *slots: int,
        now: float = 100.0,
        lease_grant: LeaseGrant | None = None,
        queue_max_requests: int = 100,
    ) -> None:
        fleet = SmallFleet(*slots, queue_max_requests=queue_max_requests)
        self.rig = Rig(fleet, ExchangeOptions())
        self.rig.fleet.now = now
        self.dispatcher = self.rig.fleet.dispatcher
        self.resumption = Resumption(
            *(self.rig.processor, self.dispatcher, lambda: self.rig.fleet.now),
            lambda: self.rig.fleet.now + SINCE_1970_S,
        )
        self.others: list[bytes] = []
        self.rig.table[OTHER] = self._serve_other
        self.calls = CoreCalls(
            self.rig.table, self.resumption, lease_grant, lambda: self.rig.fleet.now
        )
        self.responses: list[object] = []
        self.calls.on_response = self.responses.append
        self.links: list[Link] = []

    def lead(self, *, epoch: int = 0, is_successor: bool = False, **busy: int) -> int:
        """Continue what the fronts hold; `busy` is what each server shows by its port, and by
        default what its leases take. Returns how many requests were placed."""
        self.dispatcher.hold(epoch << 44, self.rig.fleet.now)
        self.calls.adopt()
        fleet = self.rig.fleet
        for address in fleet.addresses:
            leased = fleet.account(address).leased_slots
            fleet.scrape(address, busy=busy.get(f"p{address.port}", leased))
        return self.calls.open(is_successor=is_successor)

    def die(self) -> None:
        """As kill -9: everything that was written is still read."""
        for link in self.links:
            if link._transport is not None:
                link._transport.close()

    def leased(self) -> list[int]:
        fleet = self.rig.fleet
        return [fleet.account(address).leased_slots for address in fleet.addresses]

    def queued(self) -> list[str]:
        """The ids of the queued requests, in order."""
        return [ticket.request.id for ticket in self.dispatcher.queue]

    def _serve_other(self, call: object) -> OtherHandler:
        return OtherHandler(self.others)


class OtherHandler:
    """Of a call that no other core continues."""

    def __init__(self, heard: list[bytes]) -> None:
        self._heard = heard

    def receive(self, message: bytes) -> None:
        self._heard.append(message)

    def half_closed(self) -> None:
        """Nothing follows."""

    def gone(self) -> None:
        self._heard.append(b"gone")


class FakeFront:
    """A front whose Envoy is the test."""

    def __init__(self, name: str = "front", patience_s: float | None = None) -> None:
        self.now = 0.0
        self.calls = FrontCalls(
            name,
            FrontOptions(
                restored=PROCESS,
                extension=codec.extend_timeout(65).SerializeToString(),
                waits_long=lambda call: waits_long(call.metadata),
                new_id=new_id,
                patience_s=patience_s,
            ),
            asyncio.get_running_loop(),
            lambda: self.now,
        )
        self.table: ServiceTable = {}
        self.calls.add_to(self.table, (PROCESS, OTHER))
        self.link: Link | None = None

    async def follow(self, core: FakeCore, *, is_remote: bool = False) -> None:
        """Connect with a core, and let it hear the hello. A remote core has a clock of its own."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        here = network_codec(lambda: self.now) if is_remote else None
        there = network_codec(lambda: core.rig.fleet.now) if is_remote else None
        self.link = Link(self.calls, loop, "to the core", here)
        may_send = core.calls.may_decide
        other = Link(core.calls, loop, self.calls.name, there, may_send=may_send)
        core.links.append(other)
        LINKS.extend((self.link, other))
        core.calls.attach(other)
        for link, end in ((self.link, ours), (other, theirs)):
            await loop.connect_accepted_socket(partial(cast, "asyncio.Protocol", link), end)
        before = len(core.calls.hellos)
        self.calls.follow(self.link)
        if core.calls.is_open:
            await settle()
        else:
            await eventually(lambda: len(core.calls.hellos) > before)

    def ask(self, request_id: str, arrived_at: float | None = None, **headers: str) -> HandCall:
        """A request without a body; `arrived_at` is what Envoy says, by the core's clock."""
        call = HandCall()
        request = envoy.request_headers(x_request_id=request_id, **headers)
        if arrived_at is not None:
            call.metadata = ((LONG_WAIT, LONG),)
            envoy.set_arrival(request, wall_time(arrived_at))
        call.open(self.table[PROCESS])
        call.say(request)
        return call

    def die(self) -> None:
        """As kill -9."""
        assert self.link is not None and self.link._transport is not None
        self.link._transport.close()


async def join(core: FakeCore, owner: LinkOwner, name: str) -> tuple[Link, Link]:
    """Connect a front that says what a test wants; its end of the link, and the core's."""
    loop = asyncio.get_running_loop()
    here, there = Link(owner, loop), Link(core.calls, loop, name)
    LINKS.extend((here, there))
    core.calls.attach(there)
    for link, end in zip((here, there), socket.socketpair(), strict=True):
        await loop.connect_accepted_socket(partial(cast, "asyncio.Protocol", link), end)
    return here, there


async def settle() -> None:
    """Let everything that was said be heard."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def close_links() -> None:
    """End what a test has left open."""
    while LINKS:
        LINKS.pop().close()
    await settle()


def sent_to(call: HandCall) -> Address | None:
    """Where its request was sent; None while it was not."""
    for reply in call.sent:
        if reply.WhichOneof("response") == "request_headers":
            return Address.parse(envoy.destination(reply)[0])
    return None
