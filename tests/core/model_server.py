"""What really happens at one address: the truth that a ledger can only look at."""

from __future__ import annotations

from dataclasses import dataclass, field

from extproc.core.address import Address
from extproc.core.lease import Lease
from extproc.core.observation import Observation, Sight


@dataclass
class ModelServer:
    """Requests arrive a moment after they were picked, and linger after their client left."""

    address: Address
    slots: int
    is_blind: bool = False
    foreign: int = 0
    process: int = 1
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


@dataclass
class ModelLook:
    """A look on its way: it sees the truth at one moment between question and answer."""

    server: ModelServer
    began_at: float
    seen: tuple[int, int | None, str] | None = None

    def see(self, now: float) -> None:
        server = self.server
        busy = None if server.is_blind else server.busy(now)
        self.seen = (server.slots, busy, str(server.process))

    def observation(self, now: float) -> Observation:
        assert self.seen is not None
        slots, busy, process = self.seen
        return Observation(
            address=self.server.address,
            began_at=self.began_at,
            answered_at=now,
            sight=Sight.READY,
            slots=slots,
            busy_slots=busy,
            instance=process,
        )
