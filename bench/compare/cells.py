"""The cells: which trace at which load on which fleet, and what goes wrong in it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

MADE_UP: Final = "made-up conversations"
LOADS: Final = (0.7, 0.9, 1.1)
SLOWNESS: Final = 3.0
SHARED_TOKENS: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server of a fleet; `slowness` is how many times longer everything takes, and
    `shared_tokens` the context that its slots share, if they do."""

    slots: int
    slowness: float = 1.0
    shared_tokens: int | None = None


EVEN: Final = tuple(Server(slots=slots) for slots in (2, 2, 2, 2))
UNEVEN: Final = tuple(Server(slots=slots) for slots in (1, 1, 2, 4))
SLOW: Final = (replace(EVEN[0], slowness=SLOWNESS), *EVEN[1:])
SHARED: Final = tuple(Server(slots=4, shared_tokens=SHARED_TOKENS) for _ in range(2))
FLEETS: Final = {"even": EVEN, "uneven": UNEVEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One table. `load` is the offered work as a part of what the fleet can do without caches;
    with `dies` the first server is killed halfway."""

    title: str
    trace: str
    load: float
    fleet: Sequence[Server]
    dies: bool = False

    @property
    def capacity_slots(self) -> float:
        """Slot-seconds of a usual server that the fleet does in a second."""
        return sum(server.slots / server.slowness for server in self.fleet)


def fleet_name(fleet: Sequence[Server]) -> str:
    """The slots of its servers."""
    return ", ".join(str(server.slots) for server in fleet)


def cells(traces: Sequence[str], loads: Sequence[float], fleets: Sequence[str]) -> list[Cell]:
    """The made-up trace on all fleets and with all faults, public ones on the last fleet."""
    found = []
    for trace in (MADE_UP, *traces):
        for name in fleets if trace == MADE_UP else fleets[-1:]:
            fleet = FLEETS[name]
            found += [
                Cell(
                    title=f"{trace[0].upper()}{trace[1:]}, {name} fleet ({fleet_name(fleet)} "
                    f"slots), load {load:g}",
                    trace=trace,
                    load=load,
                    fleet=fleet,
                )
                for load in loads
            ]
    return found


FAULTS: Final = (
    Cell(
        title="A server dies halfway, even fleet, load 0.7 before it",
        trace=MADE_UP,
        load=0.7,
        fleet=EVEN,
        dies=True,
    ),
    Cell(
        title=f"One of four servers is {SLOWNESS:g} times slower, load 0.7",
        trace=MADE_UP,
        load=0.7,
        fleet=SLOW,
    ),
    Cell(
        title=f"Servers as started without flags: 4 slots share {SHARED_TOKENS:,} tokens, load 0.7",
        trace=MADE_UP,
        load=0.7,
        fleet=SHARED,
    ),
)
