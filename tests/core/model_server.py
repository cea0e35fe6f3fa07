"""What really happens at one address: the truth that a ledger can only look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from extproc.core.address import Address
from extproc.core.lease import Lease
from extproc.core.observation import ModelReading, Observation, Sight


@dataclass
class ModelServer:
    """Requests arrive a moment after they were picked, and linger after their client left."""

    address: Address
    slots: int
    is_blind: bool = False
    foreign: int = 0
    process: int = 1
    models: Any = ()
    arrivals: dict[int, float] = field(default_factory=dict)  # by lease id
    leases: dict[int, Lease] = field(default_factory=dict)
    lingering: list[tuple[float, int]] = field(default_factory=list)  # until, weight

    def take(self, lease: Lease, arrives_at: float) -> None:
        self.leases[lease.id] = lease
        self.arrivals[lease.id] = arrives_at

    def let_go(self, lease: Lease) -> None:
        """The request is over here; after a restart it is not known here any more."""
        self.leases.pop(lease.id, None)

    def linger(self, lease: Lease, until: float) -> None:
        """Its client left: the server finishes its step first, unless it was restarted."""
        if self.leases.pop(lease.id, None) is not None:
            self.lingering.append((until, lease.weight_slots))

    def restart(self, slots: int, *, is_blind: bool) -> None:
        """Another process on the same address: nothing of the old one is left."""
        self.slots, self.is_blind, self.foreign = slots, is_blind, 0
        self.process += 1
        self.leases.clear()
        self.lingering.clear()

    def is_here(self, lease: Lease, now: float) -> bool:
        return self.arrivals[lease.id] <= now

    def busy_ours(self, now: float) -> int:
        running = sum(
            lease.weight_slots for lease in self.leases.values() if self.is_here(lease, now)
        )
        return running + sum(weight for until, weight in self.lingering if until > now)

    def busy(self, now: float) -> int:
        return min(self.slots, self.busy_ours(now) + self.foreign)

    def is_overrun(self, now: float) -> bool:
        """Whether more of ours are here than it has slots for."""
        return self.busy_ours(now) > self.slots

    def told(self, now: float) -> dict[str, Any]:
        """What a look would see now."""
        return {
            "sight": Sight.READY,
            "slots": self.slots,
            "busy_slots": None if self.is_blind else self.busy(now),
            "instance": str(self.process),
            "models": tuple(ModelReading(name=name) for name in self.models),
        }


@dataclass
class ModelLook:
    """A look on its way: it sees the truth at one moment between question and answer."""

    server: ModelServer
    began_at: float
    seen: dict[str, Any] | None = None

    def see(self, now: float) -> None:
        self.seen = self.server.told(now)

    def observation(self, now: float) -> Observation:
        assert self.seen is not None
        return Observation(
            address=self.server.address, began_at=self.began_at, answered_at=now, **self.seen
        )
