"""A fleet without servers: the core alone, for what single calls cost."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.events import Settled, StepFailed
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions


class SilentFleet:
    """A dispatcher with idle endpoints that were scraped once. `picked` are the queued requests
    that got their slots."""

    def __init__(
        self,
        random: Random,
        options: DispatcherOptions,
        size: int,
        slots: Callable[[], int],
        models: tuple[ModelReading, ...] = (),
        context: ContextSharing = ContextSharing.PER_SLOT,
    ) -> None:
        self.picked: list[Picked] = []
        self.dispatcher = Dispatcher(random, options)
        self.dispatcher.on_events(self._take_events)
        self.addresses = [
            Address(f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}", 8080) for i in range(size)
        ]
        specs = [EndpointSpec(address=one, context=context) for one in self.addresses]
        self.dispatcher.set_members("bench", specs, 0.0)
        for address in self.addresses:
            scrape = Observation(
                address=address,
                began_at=1.0,
                answered_at=1.0,
                status=ScrapeStatus.READY,
                slots=slots(),
                busy_slots=0,
                models=models,
                context_tokens=8192,
            )
            self.dispatcher.observe(scrape, 1.0)

    def _take_events(self) -> None:
        for event in self.dispatcher.take_events():
            if isinstance(event, StepFailed):
                raise event.error
            if isinstance(event, Settled) and isinstance(event.settlement, Picked):
                self.picked.append(event.settlement)


@contextmanager
def without_gc() -> Iterator[None]:
    """Calls that are measured do not pay for a search for garbage."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
