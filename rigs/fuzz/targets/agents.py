"""Agents' messages: taken into the core's books, or the reason why their stream ends."""

import asyncio

from google.protobuf.message import DecodeError

from extproc.admin.agents import AgentsDependencies, AgentsService
from extproc.admin.agents.stream import AgentStream
from extproc.admin.call_errors import CallError
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from rigs.fuzz.reader import Reader
from tests.fakes.small_fleet import SmallFleet

HELLO = pb.AgentMessage(echo=1, hello=pb.Hello(address="10.0.0.1:8080", agent_id="a"))
LOOP = asyncio.new_event_loop()


class Attempt:
    """Two streams into one service; time passes as the bytes say."""

    def __init__(self) -> None:
        self._now = 100.0
        self._dispatcher = SmallFleet().dispatcher
        self._service = AgentsService(
            AgentsDependencies(
                dispatcher=self._dispatcher,
                clock=lambda: self._now,
                publish=lambda specs: self._dispatcher.set_members("agents", specs, self._now),
                observe=lambda seen: self._dispatcher.observe(seen, self._now),
            )
        )

    async def run(self, reader: Reader) -> None:
        """Messages as they come off a stream, up to one that ends it."""
        streams = [AgentStream(number, began_at=self._now) for number in (1, 2)]
        for stream in streams:
            self._service._streams[stream.number] = stream
            stream.clock.sent(1, self._now)
        if reader.flag():
            self._service._take(streams[0], HELLO)
            self._service._publish()
        while reader:
            stream = reader.choice(streams)
            self._now += reader.number(100) / 10
            if reader.flag():
                stream.clock.sent(2 + reader.number(8), self._now)
            try:
                message = pb.AgentMessage.FromString(reader.some())
            except DecodeError:
                continue
            try:
                self._service._take(stream, message)
            except CallError as error:
                assert str(error)
                streams.remove(stream)
                self._service._forget(stream)
                if not streams:
                    break
            self._service._publish()
        for endpoint in self._dispatcher.fleet:
            account = self._dispatcher.view.slots_at(endpoint.address)
            assert 0 <= account.free_slots <= max(account.slots, 0)
        self._service.close()


def check(data: bytes) -> None:
    LOOP.run_until_complete(Attempt().run(Reader(data)))
