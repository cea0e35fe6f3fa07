"""One stream to the picker, from its first message to its end.

It sends: hello; each observation at once, only the newest if the network is slower than the
scrapes; a message each second. Every message says how old it is, which
`extproc/admin/agents/stream_clock.py` turns into times of the picker's clock.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import grpc

from extproc.core.observation import Observation
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.pb.coxswain.v1.agent_pb2_grpc import AgentsStub
from extproc.runners.probe import ScrapePriority
from scraper.agent.messages import SCRAPE_PRIORITIES, observation_message
from scraper.agent.picker_stream import (
    PICKER_SILENT_S,
    LinkError,
    Metadata,
    received,
    run_stream,
)

HEARTBEAT_S = 1.0
LEAVING_HEARTBEAT_S = 0.2
WELCOME_S = 5.0


class Link:
    """One stream. `run` it once; `report` and `leave` may be called before or during it."""

    def __init__(
        self,
        hello: pb.Hello,
        scrape_now: Callable[[], None],
        set_priority: Callable[[ScrapePriority], None],
        clock: Callable[[], float],
    ) -> None:
        """`scrape_now` and `set_priority` are the picker's requests, called from the event loop."""
        self._hello = hello
        self._scrape_now = scrape_now
        self._set_priority = set_priority
        self._clock = clock
        self._newest: Observation | None = None
        self._is_leaving = False
        self._due = asyncio.Event()
        self._welcomed = asyncio.Event()
        self._echo = 0
        self._heard_at = 0.0
        self._is_drained = False
        self._is_hung_up = False

    @property
    def is_attached(self) -> bool:
        """Whether the picker has sent a message."""
        return self._welcomed.is_set()

    def report(self, observation: Observation) -> None:
        """Send this observation; it replaces one that has not been sent yet."""
        self._newest = observation
        self._due.set()

    def leave(self) -> None:
        """Send the deregistration; `run` returns when no request is running here."""
        self._is_leaving = True
        self._is_hung_up = False  # no other message would send it
        self._due.set()

    def hang_up(self) -> None:
        """End it without deregistration: another stream follows at once."""
        self._is_hung_up = True
        self._welcomed.set()
        self._due.set()

    async def run(self, channel: grpc.aio.Channel, metadata: Metadata = ()) -> bool:
        """Returns True after a granted deregistration and False after `hang_up`; raises `LinkError`
        for any other end.
        """
        call = AgentsStub(channel).Attach(metadata=metadata)
        try:
            await run_stream(call, self._read(call), self._write(call))
        except Exception:
            if not self._is_drained and not self._is_hung_up:
                raise
        if self._is_drained or self._is_hung_up:
            return self._is_drained
        raise LinkError("the picker ended the stream")

    async def _read(
        self, call: grpc.aio.StreamStreamCall[pb.AgentMessage, pb.PickerMessage]
    ) -> None:
        async for message in received(call, WELCOME_S, PICKER_SILENT_S):
            self._echo = message.number
            self._heard_at = self._clock()
            self._welcomed.set()
            scrape_priority = SCRAPE_PRIORITIES.get(message.scrape_priority)
            if scrape_priority is not None:
                self._set_priority(scrape_priority)
            if message.scrape_now:
                self._scrape_now()
            if message.is_drained:
                self._is_drained = True
                return

    async def _write(
        self, call: grpc.aio.StreamStreamCall[pb.AgentMessage, pb.PickerMessage]
    ) -> None:
        await self._welcomed.wait()
        if not self._is_hung_up:
            await call.write(self._message(self._clock(), hello=self._hello))
        has_left = False
        while not self._is_hung_up:
            self._due.clear()
            if self._is_leaving and not has_left:
                has_left = True
                await call.write(self._message(self._clock(), deregistration=pb.Deregistration()))
            newest, self._newest = self._newest, None
            now = self._clock()  # one moment for all ages of a message, or none of them bounds
            observation = None if newest is None else observation_message(newest, now)
            await call.write(self._message(now, observation=observation))
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_HEARTBEAT_S if has_left else HEARTBEAT_S):
                    await self._due.wait()

    def _message(
        self,
        now: float,
        hello: pb.Hello | None = None,
        observation: pb.Observation | None = None,
        deregistration: pb.Deregistration | None = None,
    ) -> pb.AgentMessage:
        return pb.AgentMessage(
            echo=self._echo,
            held_s=now - self._heard_at,
            hello=hello,
            observation=observation,
            deregistration=deregistration,
        )
