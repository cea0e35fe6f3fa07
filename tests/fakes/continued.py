"""A fleet of one slot, and what continues its exchanges."""

from __future__ import annotations

from extproc.core.held_state import HeldState
from extproc.processes.fronts.resumption import Resumption
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.running_stream import RunningStream
from extproc.transport.long_wait import LONG, LONG_WAIT
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, Rig
from tests.fakes.small_fleet import SmallFleet

SINCE_1970_S = 1.7e9
"""What Envoy's clock is ahead of the monotonic one."""


def wall_time(now: float) -> str:
    """A time of the monotonic clock, as Envoy writes it."""
    return f"{now + SINCE_1970_S:.6f}"


class Continued:
    """A fleet of one slot, and what continues its exchanges."""

    def __init__(self) -> None:
        self.rig = Rig(SmallFleet(1), ExchangeOptions())
        self.fleet = self.rig.fleet
        self.resumption = Resumption(
            self.rig.processor,
            self.fleet.dispatcher,
            lambda: self.fleet.now,
            lambda: self.fleet.now + SINCE_1970_S,
        )
        self.streams: dict[str, RunningStream] = {}

    def begin(self, name: str, *, waits_long: bool = True) -> RunningStream:
        """A call whose request is not read yet; its Envoy has the configuration for fronts."""
        call = HandCall()
        call.metadata = ((LONG_WAIT, LONG),) if waits_long else ()
        stream = self.resumption.begin(call, name, self.fleet.now)
        assert isinstance(stream, RunningStream)
        self.streams[name] = stream
        return stream

    def ask(
        self,
        name: str,
        arrived_at: float | str | None = None,
        *,
        waits_long: bool = True,
        **headers: str,
    ) -> RunningStream:
        """`arrived_at` is what Envoy says, by the monotonic clock."""
        stream = self.begin(name, waits_long=waits_long)
        request = envoy.request_headers(x_request_id=name, **headers)
        if arrived_at is not None:
            text = arrived_at if isinstance(arrived_at, str) else wall_time(arrived_at)
            envoy.set_arrival(request, text)
        message = request.SerializeToString()
        self.resumption.claim(stream, message)
        stream.receive(message)
        return stream

    def lose(self, name: str) -> None:
        """Its front is gone."""
        stream = self.streams[name]
        self.resumption.leave(stream)
        stream.gone()

    def state(self, name: str) -> HeldState | None:
        return self.resumption.state_of(self.streams[name])

    def queued(self) -> list[str]:
        return [ticket.request.id for ticket in self.fleet.dispatcher.queue]
