"""Fronts and cores: after any messages, in any batches, and any deaths, the books are right.

The links are real ones, over memory that hands over their bytes in pieces. The processes of a
machine trust each other, so no frame is forged.
"""

import asyncio

from extproc.header_names import USAGE
from extproc.processes.fronts.link import Link
from extproc.stream.envoy.codec import PROCESS
from extproc.usage.response_stream import PREFIX, with_responses
from rigs.fuzz.reader import Reader
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall
from tests.fakes.fronts import FakeCore, FakeFront

SLOTS = (1, 2)
MOST_STEPS = 60
MOST_CALLS = 8


class Pipe(asyncio.Transport):
    """What a link writes, until the attempt hands it to the other end."""

    peer: "Pipe"

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        self._written = b""
        self._is_closing = False
        link.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """All is kept."""

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        self._is_closing = True

    def move(self, reader: Reader) -> bool:
        """Hand over what was said so far, in pieces; returns whether there was any."""
        self.link.flush()
        data, self._written = self._written, b""
        if not data:
            return False
        while data:
            size = 1 + reader.number(256) if reader.flag() else len(data)
            piece, data = data[:size], data[size:]
            self.peer.link.data_received(piece)
        return True

    def lose(self) -> None:
        self._is_closing = True
        self.link.connection_lost(None)


class Front(FakeFront):
    """A front whose Envoy is the bytes."""

    pipe: Pipe

    def __init__(self, name: str, now: float) -> None:
        super().__init__(name)
        self.now = now
        self.table[PROCESS] = with_responses(
            self.table[PROCESS], self.calls.responses, lambda _: True
        )
        self.open: list[HandCall] = []


class Attempt:
    """Two fronts and one core after the other."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._number = 0
        self._core = FakeCore(*SLOTS)
        now = self._core.rig.fleet.now
        self._fronts = [Front(f"front-{number}", now) for number in range(2)]

    async def run(self) -> None:
        for front in self._fronts:
            self._connect(front)
        self._core.lead()
        await self._settle()
        steps = (
            *(self._ask, self._say, self._reset, self._move, self._replace, self._response),
            self._silence,
        )
        for _ in range(MOST_STEPS):
            if not self._reader:
                break
            self._reader.choice(steps)()
            await asyncio.sleep(0)
            fleet = self._core.rig.fleet
            assert not fleet.dispatcher.faults(fleet.now)
        for front in self._fronts:
            for call in front.open:
                call.reset()
        await self._settle()
        fleet = self._core.rig.fleet
        assert not fleet.dispatcher.faults(fleet.now)
        assert not len(self._core.calls) and not len(fleet.dispatcher.queue)
        leases = list(fleet.dispatcher.view.leases())
        assert all(lease.state.name == "DRAINING" for lease in leases), leases
        assert not any(front.calls._ended or len(front.calls.responses) for front in self._fronts)

    def _connect(self, front: Front) -> None:
        loop = asyncio.get_running_loop()
        ours = front.pipe = Pipe(Link(front.calls, loop, "to the core"))
        theirs = Pipe(Link(self._core.calls, loop, front.calls.name))
        ours.peer, theirs.peer = theirs, ours
        self._core.calls.attach(theirs.link)
        front.calls.follow(ours.link)
        ours.move(self._reader)

    async def _settle(self) -> None:
        """Until nobody has anything to say."""
        while True:
            for _ in range(3):
                await asyncio.sleep(0)
            if not sum(self._move_of(front) for front in self._fronts):
                return

    def _move_of(self, front: Front) -> bool:
        return front.pipe.move(self._reader) | front.pipe.peer.move(self._reader)

    def _move(self) -> None:
        self._move_of(self._reader.choice(self._fronts))

    def _ask(self) -> None:
        front = self._reader.choice(self._fronts)
        if len(front.open) < MOST_CALLS:
            self._number += 1
            call = HandCall().open(front.table[PROCESS])
            front.open.append(call)
            call.say(envoy.request_headers(x_request_id=f"r{self._number}"))

    def _silence(self) -> None:
        name = self._reader.choice(self._fronts).calls.name
        self._core.calls.silence(name, is_silent=self._reader.flag())

    def _say(self) -> None:
        front = self._reader.choice(self._fronts)
        if front.open:
            call = self._reader.choice(front.open)
            if call.status is None:
                served = self._reader.choice(("10.0.0.1:8000", "10.0.0.1:8001", ""))
                call.say(envoy.response_headers(body_bytes=10, served=served))

    def _reset(self) -> None:
        front = self._reader.choice(self._fronts)
        if front.open:
            call = front.open.pop(self._reader.number(len(front.open)))
            if self._reader.flag():
                call.half_close()
            call.reset()

    def _response(self) -> None:
        front = self._reader.choice(self._fronts)
        call = HandCall()
        call.metadata = ((USAGE, f"{PREFIX}e{self._reader.number(4)}"),)
        call.open(front.table[PROCESS])
        call.reset()

    def _replace(self) -> None:
        """The core dies; what it said is heard, or not."""
        now = self._core.rig.fleet.now + 1.0
        for front in self._fronts:
            if self._reader.flag():
                front.pipe.peer.move(self._reader)
            front.pipe.lose()
        self._core = FakeCore(*SLOTS, now=now)
        for front in self._fronts:
            self._connect(front)
        self._core.lead()


async def _attempt(data: bytes) -> None:
    await Attempt(Reader(data)).run()


def check(data: bytes) -> None:
    """In a loop of its own: what an input leaves to a timer is not for the next one."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_attempt(data))
    finally:
        loop.close()
