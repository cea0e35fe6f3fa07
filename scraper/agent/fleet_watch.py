"""In place of a scraper: the slots of a whole fleet, from its picker's admin port.

The picker sends each change at once. While the fleet's picker cannot be reached, each attempt is
an observation that failed, so the parent gives the fleet up after a few.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import grpc

from extproc.core.address import Address
from extproc.core.observation import (
    MAX_SLOTS,
    Issue,
    ModelReading,
    Observation,
    ScrapeStatus,
)
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.runners.target import EndpointTarget
from scraper.agent.picker_stream import LinkError, Metadata

SILENT_S = 4.0
"""The picker sends a message each second."""
RETRY_S = 0.5

log = logging.getLogger("coxswain.agent")


class FleetWatch:
    """Turns the messages about a fleet into observations of one endpoint.

    `connect` opens a channel to the admin port of the fleet's picker, and raises `LinkError` if it
    cannot; `metadata` returns what to send with each call (a bearer token). `sink` receives each
    observation, with `ahead` slots more than the fleet has: as many requests of the parent wait in
    the fleet's queue for the next slot, while the news of it would be on its way. Belongs to one
    event loop; end it with `aclose`.
    """

    def __init__(
        self,
        fleet: str,
        connect: Callable[[], grpc.aio.Channel],
        sink: Callable[[Observation], None],
        metadata: Callable[[], Metadata] = lambda: (),
        clock: Callable[[], float] = time.monotonic,
        ahead: int = 0,
    ) -> None:
        """`fleet` is the name of the port in logs and issues: host:port."""
        self._fleet = fleet
        self._connect = connect
        self._sink = sink
        self._metadata = metadata
        self._clock = clock
        self._ahead = ahead
        self._newest: pb.WatchFleetResponse | None = None
        self._address: Address | None = None
        self._task: asyncio.Task[None] | None = None
        self._problem: str | None = None

    def watch(self, target: EndpointTarget) -> None:
        """Follow the fleet from now on; of the target only the address is used."""
        self._address = target.address
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch the fleet {self._fleet}")

    def scrape_now(self, _: Address) -> None:
        """Report again what is known, if the fleet is being followed: it is the current state."""
        if self._newest is not None:
            self._report(self._newest)

    async def aclose(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
                problem = "the picker ended the stream"
            except grpc.aio.AioRpcError as error:
                problem = " ".join((error.details() or error.code().name).split())[:300]
            except LinkError as error:
                problem = str(error)
            except TimeoutError:
                problem = f"the picker has sent nothing for {SILENT_S:g} s"
            self._newest = None
            self._fail(problem)
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        channel = self._connect()
        try:
            call = AdminStub(channel).WatchFleet(pb.WatchFleetRequest(), metadata=self._metadata())
            messages = aiter(call)
            while True:
                async with asyncio.timeout(SILENT_S):
                    try:
                        message = await anext(messages)
                    except StopAsyncIteration:
                        return
                if self._problem is not None:
                    log.info("connected to the fleet at %s again", self._fleet)
                    self._problem = None
                self._newest = message
                self._report(message)
        finally:
            await channel.close()

    def _report(self, message: pb.WatchFleetResponse) -> None:
        assert self._address is not None
        self._sink(fleet_observation(message, self._address, self._clock(), self._ahead))

    def _fail(self, problem: str) -> None:
        assert self._address is not None
        if problem != self._problem:
            self._problem = problem
            log.warning("fleet %s: %s; retrying", self._fleet, problem)
        now = self._clock()
        self._sink(
            Observation(
                address=self._address,
                began_at=now,
                answered_at=now,
                status=ScrapeStatus.FAILED,
                issues=(fleet_unreachable(self._fleet),),
            )
        )


def fleet_unreachable(fleet: str) -> Issue:
    """The agent does not hear from the fleet's picker."""
    return Issue(
        code="fleet-unreachable",
        message=f"the agent of this fleet does not hear from its picker at {fleet}",
        remedy="check that the picker runs, and the agent's --fleet options; its log says why",
    )


def fleet_observation(
    message: pb.WatchFleetResponse, address: Address, now: float, ahead: int = 0
) -> Observation:
    """The fleet as one endpoint, at `now`, with `ahead` slots more than it has. Without a slot it
    counts as loading."""
    return Observation(
        address=address,
        began_at=now,
        answered_at=now,
        status=ScrapeStatus.READY if message.slots else ScrapeStatus.LOADING,
        slots=_with(ahead, message.slots),
        busy_slots=min(message.busy_slots, MAX_SLOTS),
        models=tuple(_model(model, ahead) for model in message.models),
        context_tokens=message.context_tokens if message.HasField("context_tokens") else None,
        shared_tokens=0,  # the picker there sees to it
    )


def _model(model: pb.WatchFleetResponse.Model, ahead: int) -> ModelReading:
    has_slots = model.HasField("slots")
    return ModelReading(
        name=model.name,
        aliases=tuple(model.aliases),
        is_loaded=model.is_loaded,
        slots=_with(ahead, model.slots) if has_slots else None,
        busy_slots=min(model.busy_slots, MAX_SLOTS) if has_slots else None,
    )


def _with(ahead: int, slots: int) -> int:
    """None of nothing: a fleet or model without a slot has no request wait for one."""
    return min(slots + ahead, MAX_SLOTS) if slots else 0
