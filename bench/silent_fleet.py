"""A fleet without servers: the core alone, for what single calls cost."""

from collections.abc import Callable

from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.decision import Picked, Settlement
from extproc.core.scheduler.dispatcher import Dispatcher


class Ear:
    """Hears of settlements; the rest of the world is silent."""

    def __init__(self) -> None:
        self.picked: list[Picked] = []

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        if isinstance(settlement, Picked):
            self.picked.append(settlement)

    def wake_at(self, when: float) -> None:
        pass

    def membership_changed(self) -> None:
        pass

    def unsure_of(self, address: Address) -> None:
        pass


def fill(
    dispatcher: Dispatcher,
    size: int,
    slots: Callable[[], int],
    models: tuple[ModelReading, ...] = (),
) -> list[Address]:
    """Add idle endpoints that were scraped once; returns their addresses."""
    addresses = [Address(f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}", 8080) for i in range(size)]
    dispatcher.set_members("bench", [EndpointSpec(address=one) for one in addresses], 0.0)
    for address in addresses:
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
        dispatcher.observe(scrape, 1.0)
    return addresses
