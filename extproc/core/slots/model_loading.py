"""Models that routers are loading.

One load of a model at a time in the whole fleet: a burst for a cold model must not make every
router throw out what it holds. A load is pending

    from the pick that starts it, or the look that first shows it (somebody else asked for it)
    until a look that began after that shows the model loaded; or that it is not being loaded
        any more, after the request that started it ended; or its server is lost; or a long time
        passed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.address import Address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extproc.core.observation import ModelReading
    from extproc.core.slots.lease import Lease

LOAD_TIMEOUT_S = 300.0
"""A load that takes longer is no reason to keep others from trying."""


class ModelLoad:
    """One pending load. `lease` is of the request that started it, None for somebody else's."""

    __slots__ = ("address", "idle_since", "lease", "since", "until")

    def __init__(self, address: Address, now: float, lease: Lease | None) -> None:
        self.address = address
        self.since = now
        self.until = now + LOAD_TIMEOUT_S
        self.lease = lease
        self.idle_since = None if lease is not None else now
        """Since when no request of ours waits for it."""

    def is_over(self, reading: ModelReading | None, began_at: float) -> bool:
        """Whether a look that began then, and showed this, ends it."""
        if began_at < self.since:
            return False  # it may have seen what was there before
        if reading is None or reading.is_loaded:
            return True
        return not reading.is_loading and self.idle_since is not None and self.idle_since < began_at


class ModelLoadTracker:
    """Pending loads by model; at most one each. O(1) a question, O(loads) at a release."""

    def __init__(self) -> None:
        self._pending: dict[str, ModelLoad] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def start(self, model: str, address: Address, now: float, lease: Lease | None = None) -> None:
        """A request was sent to a server that has to load the model first; without a lease it
        was not ours."""
        self._pending[model] = ModelLoad(address, now, lease)

    def may_start(self, model: str) -> bool:
        """Whether nobody is loading it."""
        return model not in self._pending

    def end(self, model: str, address: Address) -> None:
        """That server has it, or never will; one that is not pending there is no error."""
        load = self._pending.get(model)
        if load is not None and load.address == address:
            del self._pending[model]

    def released(self, lease: Lease, now: float) -> None:
        """A request of ours ended: if it started a load, nobody of ours waits for that now."""
        for load in self._pending.values():
            if load.lease is lease:
                load.lease, load.idle_since = None, now

    def pending_at(self, address: Address) -> list[str]:
        """What one server is loading."""
        return [model for model, load in self._pending.items() if load.address == address]

    def over(
        self, address: Address, readings: Mapping[str, ModelReading], began_at: float
    ) -> list[str]:
        """The models whose loads a look at that server ends."""
        return [
            model
            for model, load in self._pending.items()
            if load.address == address and load.is_over(readings.get(model), began_at)
        ]

    def expired(self, now: float) -> list[str]:
        """Give up the loads that took too long; returns their models."""
        late = [model for model, load in self._pending.items() if load.until <= now]
        for model in late:
            del self._pending[model]
        return late

    def next_expiry(self) -> float | None:
        """When `expired` has something to do next, or None."""
        return min((load.until for load in self._pending.values()), default=None)
