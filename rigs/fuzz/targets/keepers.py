"""Keepers' messages: taken into the known machines, or the reason why their stream ends."""

import asyncio

from google.protobuf.message import DecodeError

from extproc.admin.call_errors import CallError
from extproc.admin.keepers.service import KeepersDependencies, KeepersService, _Stream
from extproc.app.placement import Placement
from extproc.core.placement.swaps import PlacementOptions
from extproc.pb.coxswain.v1 import keeper_pb2 as pb
from rigs.fuzz.reader import Reader
from tests.fakes.small_fleet import SmallFleet

LOOP = asyncio.new_event_loop()


class Attempt:
    """Two streams into one service that decides about models; time passes as the bytes say."""

    def __init__(self) -> None:
        self._now = 100.0
        self._service = KeepersService(
            KeepersDependencies(
                clock=lambda: self._now,
                changed=lambda machine: self._placement.changed(machine),  # noqa: PLW0108  # it comes next
                forgotten=lambda machine: self._placement.forgotten(machine),  # noqa: PLW0108
            )
        )
        self._dispatcher = SmallFleet(1).dispatcher
        self._placement = Placement(
            self._dispatcher, self._service.want, lambda: self._now, PlacementOptions()
        )

    async def run(self, reader: Reader) -> None:
        """Messages as they come off a stream, up to one that ends it."""
        streams = [_Stream(self._now) for _ in range(2)]
        while reader and streams:
            self._now += reader.number(100) / 10
            stream = reader.choice(streams)
            try:
                message = pb.KeeperMessage.FromString(reader.some())
            except DecodeError:
                continue
            try:
                self._service._take(stream, message)
            except CallError as error:
                assert str(error)
                str(error).encode()
                self._end(stream, streams)
                continue
            if stream.end is not None:
                self._end(stream, streams)
        for machine in self._service.machines.values():
            assert set(machine.statuses) <= set(machine.models)
        assert not self._dispatcher.faults(self._now)
        self._placement.stop()
        self._service.close()

    def _end(self, stream: _Stream, streams: list[_Stream]) -> None:
        streams.remove(stream)
        self._service._detach(stream)


def check(data: bytes) -> None:
    LOOP.run_until_complete(Attempt().run(Reader(data)))
