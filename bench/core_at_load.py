"""What one core process carries: it is given more than it can do, by fronts that hold ready-made
requests.

The core is the real one, with a spare that it feeds. This process is its supervisor and its fronts:
behind real ones, an Envoy and the load would need more cores than the core does.
"""

import asyncio
import json
import os
import re
import socket
import sys
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Final, cast

import httpx
from google.protobuf.struct_pb2 import Struct

from bench.process import cpu_seconds
from bench.result import Row, Say, at_least, at_most, none_of
from bench.rig import WITHOUT_BODIES, Rig
from extproc.core.held_state import LEASED
from extproc.demo.port import LOOPBACK, free_ports
from extproc.header_names import ARRIVED_AT, FILTER_ATTRIBUTES
from extproc.pb import external_processor_pb2 as pb
from extproc.processes.control import Message
from extproc.processes.fronts import frames
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.link import Link
from extproc.processes.member import Member, Role
from extproc.stream.envoy.codec import PROCESS
from extproc.transport.long_wait import LONG, LONG_WAIT

FRONTS: Final = 2
IN_FLIGHT: Final = 128
"""Requests of each front: with less the core would wait for this process."""
SLOTS: Final = FRONTS * IN_FLIGHT
ROUNDS: Final = 10
ROUND_S: Final = 1.0
READY_S: Final = 30.0
POLL_S: Final = 0.05
METADATA: Final = (("te", "trailers"), ("content-type", "application/grpc"), (LONG_WAIT, LONG))
SERVED: Final = re.compile(r'^coxswain_requests_total{outcome="served".*} (.+)$', re.MULTILINE)
ID: Final = b"0" * 36


def request_headers() -> bytes:
    """A request of a chat as Envoy sends it with fronts, whose body the picker does not get."""
    return _headers(
        "request_headers",
        {
            ":path": "/v1/chat/completions",
            ":method": "POST",
            "content-type": "application/json",
            "content-length": "94",
            "x-request-id": ID.decode(),
            ARRIVED_AT: f"{time.time():.6f}",
        },
    )


def response_headers(server: str) -> bytes:
    """Its response, with what Envoy says of it."""
    facts = Struct()
    facts.update(
        {
            "upstream.request_attempt_count": 1.0,
            "upstream.address": server,
            "response.code_details": "via_upstream",
        }
    )
    headers = {":status": "200", "content-type": "application/json", "content-length": "84"}
    return _headers("response_headers", headers, facts)


def _headers(kind: str, headers: dict[str, str], facts: Struct | None = None) -> bytes:
    message = pb.ProcessingRequest()
    for key, value in headers.items():
        added = getattr(message, kind).headers.headers.add()
        added.key, added.raw_value = key, value.encode()
    if facts is not None:
        message.attributes[FILTER_ATTRIBUTES] = facts.SerializeToString()
    return message.SerializeToString()


class ReadyMade:
    """A front whose requests are always `IN_FLIGHT`: one that ends is followed by the next, until
    `is_ending`."""

    def __init__(self, server: str) -> None:
        self.ended = 0
        self.failed = 0
        self.opened = 0
        self.is_ending = False
        self._request, self._response = request_headers(), response_headers(server)

    def begin(self, link: Link, name: str) -> None:
        """Say hello, and send the first requests."""
        link.say((frames.HELLO, name, frames.VERSION, (), []))
        for _ in range(IN_FLIGHT):
            self._open(link)

    def heard(self, link: Link, batch: list[Frame]) -> None:
        for frame in batch:
            if frame[0] == frames.REPLIES:
                _, number, heard, _, state, _ = frame
                if heard == 1:
                    if state is not None and state[0] == LEASED:
                        link.say((frames.MESSAGE, number, self._response))
                else:
                    link.say((frames.GONE, number, True))
            elif frame[0] == frames.ENDED:
                self.ended += 1
                self._open(link)
            elif frame[0] == frames.FINISH:
                self.failed += 1
                self._open(link)

    def lost(self, link: Link) -> None:
        """The core has ended."""

    def throttled(self, link: Link, is_throttled: bool) -> None:
        """No more is in flight than before."""

    def _open(self, link: Link) -> None:
        if self.is_ending:
            return
        self.opened = number = self.opened + 1
        exchange = f"{number:016x}"
        link.say((frames.OPEN, number, PROCESS, METADATA, exchange, time.monotonic()))
        request = self._request.replace(ID, b"%036x" % number)
        link.say((frames.MESSAGE, number, request))


@dataclass
class Cores:
    """A core that leads and its spare, as the supervisor sees them."""

    http: int = 0
    """The port of the leader's pages."""
    members: list[Member] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    said: dict[str, set[str]] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, rig: Rig, server: int) -> None:
        """Start both. Raises `TimeoutError` if the core does not begin to decide."""
        [self.http] = free_ports(1)
        settings = {**WITHOUT_BODIES, "fronts": FRONTS}
        config, grpc = rig.configure_picker([server], settings, http=self.http)
        options = {"config": str(config), "endpoints": None, "assignments": None}
        command = [sys.executable, "-m", "extproc.cli.process", json.dumps(options)]
        for name in ("core-1", "core-2"):
            self.said[name] = set()
            self.members.append(
                await Member.start(
                    Role.CORE,
                    name,
                    [*command, str(os.getpid())],
                    dict(os.environ),
                    self._heard,
                    lambda _: None,
                )
            )
            await self._until(name, "started")
        core, spare = self.members
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        core.order("feed", ours, spare=spare.name)
        spare.order("learn", theirs)
        core.order("lead", fronts=[], port=grpc, since=None, is_successor=False)
        await self._until(core.name, "leads")

    async def connect(self, front: ReadyMade) -> None:
        """Connect a front with the core, and let it begin."""
        name = f"front-{len(self.links) + 1}"
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.members[0].order("link", theirs, front=name)
        link = Link(front, loop, "the core")
        await loop.connect_accepted_socket(lambda: cast("asyncio.Protocol", link), ours)
        self.links.append(link)
        front.begin(link, name)

    async def served(self) -> int:
        """The requests that the core counted."""
        async with httpx.AsyncClient(trust_env=False) as client:
            text = (await client.get(f"http://{LOOPBACK}:{self.http}/metrics")).text
        return sum(int(float(each)) for each in SERVED.findall(text))

    async def stop(self) -> None:
        for link in self.links:
            link.close()
        for member in self.members:
            member.end_at_once()
            await member.wait()

    def _heard(self, member: Member, message: Message) -> None:
        self.said[member.name].add(str(message["is"]))
        self.changed.set()

    async def _until(self, name: str, word: str) -> None:
        async with asyncio.timeout(READY_S):
            while word not in self.said[name]:
                self.changed.clear()
                await self.changed.wait()


async def measure_core(rig: Rig, server: int, say: Say) -> list[Row]:
    """Keep a core busy. `server` is the port of a stand-in with `SLOTS` slots."""
    cores = Cores()
    try:
        await cores.start(rig, server)
        fronts = [ReadyMade(f"{LOOPBACK}:{server}") for _ in range(FRONTS)]
        for front in fronts:
            await cores.connect(front)
        pid = cores.members[0].pid
        rates, used_us, shares = [], [], []
        for number in range(ROUNDS + 1):
            say(f"cluster: a core that is kept busy, round {number} of {ROUNDS}")
            began, before_s = time.monotonic(), cpu_seconds(pid)
            ended = sum(front.ended for front in fronts)
            await asyncio.sleep(ROUND_S)
            took_s, used_s = time.monotonic() - began, cpu_seconds(pid) - before_s
            ended = sum(front.ended for front in fronts) - ended
            if number:  # in the first one everything is new
                rates.append(ended / took_s)
                used_us.append(1e6 * used_s / ended)
                shares.append(used_s / took_s)
        for front in fronts:
            front.is_ending = True
        async with asyncio.timeout(READY_S):
            while any(each.opened > each.ended + each.failed for each in fronts):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        failed = sum(front.failed for front in fronts)
        missing = sum(front.ended for front in fronts) - await cores.served()
    finally:
        await cores.stop()
    return [
        at_most("CPU time per exchange, a core that is kept busy", median(used_us), 40, " us"),
        at_least("exchanges/s of a core that is kept busy", median(rates), 20_000),
        Row(what="its share of a processor", value=f"{100 * median(shares):.0f} %"),
        none_of("its failed exchanges", failed),
        none_of("its exchanges that it did not count", missing),
    ]
