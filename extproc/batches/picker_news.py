"""What the picker says: how many slots are busy, and how many requests arrive.

Both are calls that it has for others: `WatchFleet`, which reports each change within 20 ms, for
parent pickers, and `ListScale` for programs that start servers.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import grpc

from extproc.batches.gate import Capacity
from extproc.core.address import Address
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.runners.target import EndpointTarget
from scraper.agent.fleet_watch import FleetWatch
from scraper.agent.picker_stream import LinkError, Metadata

ARRIVALS_S: Final = 2.0
"""The interval at which the rates of arrivals are asked for: they change over a minute."""
ALL: Final = ""
"""The pool of slots that all models of the fleet share."""
ANSWER_S: Final = 10.0
_NOWHERE: Final = Address.of("127.0.0.1", 1)

log = logging.getLogger("coxswain.batches")


class PickerNews:
    """Follows one picker from `start` to `aclose`; it calls `on_news` after each message.

    Without a picker nothing is known, and `capacity` is None: then no line may be sent.
    """

    def __init__(
        self,
        picker: str,
        connect: Callable[[], grpc.aio.Channel],
        metadata: Callable[[], Metadata],
        objective: str,
    ) -> None:
        """`objective` is that of the lines: its requests are none of the others'."""
        self._connect = connect
        self._metadata = metadata
        self.on_news: Callable[[], None] = lambda: None
        """Called after each message."""
        self._objective = objective
        self._watch = FleetWatch(picker, connect, self._observed, metadata)
        self._fleet: Observation | None = None
        self._by_name: dict[str, ModelReading] = {}
        self._arrivals: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watch.watch(EndpointTarget(address=_NOWHERE))
        self._task = asyncio.create_task(self._ask_for_arrivals(), name="ask for arrivals")

    async def aclose(self) -> None:
        await self._watch.aclose()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def pool_of(self, model: str) -> str:
        """The slots that a request for a model may use: the model's own name if they are its own,
        else `ALL`."""
        reading = self._by_name.get(model)
        return ALL if reading is None or reading.slots is None else reading.name

    def capacity(self, pool: str) -> Capacity | None:
        """The slots of a pool now; None while that is not known."""
        if self._fleet is None:
            return None
        found: ModelReading | Observation = self._by_name.get(pool, self._fleet)
        if isinstance(found, ModelReading) and not found.is_loaded:
            return None  # a line is no reason to load a model, for which another may have to leave
        slots, busy = found.slots, found.busy_slots
        if slots is None or busy is None:
            return None
        arrivals = self._arrivals
        rate = sum(arrivals.values()) if pool == ALL else arrivals.get(pool, 0.0)
        return Capacity(slots=slots, busy=busy, arrivals_per_s=rate)

    def _observed(self, observation: Observation) -> None:
        if observation.status is ScrapeStatus.FAILED:
            self._fleet = None
            self._by_name = {}
        else:
            self._fleet = observation
            self._by_name = {
                name: model for model in observation.models for name in (model.name, *model.aliases)
            }
        self.on_news()

    async def _ask_for_arrivals(self) -> None:
        while True:
            try:
                channel = self._connect()
                try:
                    await self._ask(channel)
                finally:
                    await channel.close()
            except (grpc.aio.AioRpcError, LinkError) as error:
                log.debug("the rates of arrivals are not known: %s", type(error).__name__)
            await asyncio.sleep(ARRIVALS_S)

    async def _ask(self, channel: grpc.aio.Channel) -> None:
        stub = AdminStub(channel)
        while True:
            all_ = await self._rates(stub, "")
            own = await self._rates(stub, self._objective)
            self._arrivals = {
                model: max(0.0, rate - own.get(model, 0.0)) for model, rate in all_.items()
            }
            await asyncio.sleep(ARRIVALS_S)

    async def _rates(self, stub: AdminStub, objective: str) -> dict[str, float]:
        request = pb.ListScaleRequest(objective=objective)
        answer = await stub.ListScale(request, metadata=self._metadata(), timeout=ANSWER_S)
        return {each.model: each.arrivals_per_s for each in answer.models}
