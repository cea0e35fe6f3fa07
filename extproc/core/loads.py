"""Models that routers are loading because a request of ours asked for them.

One load of a model at a time in the whole fleet: a burst for a cold model must not make
every router throw out what it holds. A load is pending from the pick that starts it until a
look shows the model loaded, its server is lost, or a long time passed.
"""

from __future__ import annotations

from typing import NamedTuple

from extproc.core.address import Address

LOAD_TIMEOUT_S = 300.0
"""A load that takes longer is no reason to keep others from trying."""


class Load(NamedTuple):
    address: Address
    until: float


class Loads:
    """Pending loads by model; at most one each. O(1) a question."""

    def __init__(self) -> None:
        self._pending: dict[str, Load] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def start(self, model: str, address: Address, now: float) -> None:
        """A request was sent to a server that has to load the model first."""
        self._pending[model] = Load(address, now + LOAD_TIMEOUT_S)

    def may_start(self, model: str) -> bool:
        """Whether nobody is loading it."""
        return model not in self._pending

    def end(self, model: str, address: Address) -> bool:
        """That server has it, or never will; returns whether a load was pending there."""
        load = self._pending.get(model)
        if load is None or load.address != address:
            return False
        del self._pending[model]
        return True

    def pending_at(self, address: Address) -> list[str]:
        """What one server is loading for us."""
        return [model for model, load in self._pending.items() if load.address == address]

    def expired(self, now: float) -> list[str]:
        """Give up the loads that took too long; returns their models."""
        late = [model for model, load in self._pending.items() if load.until <= now]
        for model in late:
            del self._pending[model]
        return late

    def next_expiry(self) -> float | None:
        """When `expired` has something to do next, or None."""
        return min((load.until for load in self._pending.values()), default=None)
