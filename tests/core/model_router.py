"""What really happens at a router: each of its models is a process that has to be loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from extproc.core.address import Address
from extproc.core.lease import Lease
from extproc.core.observation import ModelReading, Sight
from tests.core.model_server import ModelServer

NEVER = float("inf")


@dataclass
class ModelProcess(ModelServer):
    """One model of a router: loaded from `loaded_at` on; what came before waits for that."""

    load_s: float = 0.5
    loading_since: float = NEVER
    loaded_at: float = NEVER

    def is_loaded(self, now: float) -> bool:
        return self.loaded_at <= now

    def is_loading(self, now: float) -> bool:
        return self.loading_since <= now < self.loaded_at

    def is_unused(self, now: float) -> bool:
        return not self.leases and not self.foreign and not self.busy_ours(now)

    def load(self, at: float) -> None:
        if self.loading_since == NEVER:
            self.loading_since, self.loaded_at = at, at + self.load_s

    def unload(self) -> None:
        self.loading_since = self.loaded_at = NEVER
        self.lingering.clear()

    def busy_ours(self, now: float) -> int:
        """Each holds what it asked for, not what its lease says."""
        if not self.is_loaded(now):
            return 0
        here = [lease for lease in self.leases.values() if self.is_here(lease, now)]
        running = sum(min(lease.asked_slots, self.slots) for lease in here)
        return running + sum(weight for until, weight in self.lingering if until > now)


@dataclass
class ModelRouter(ModelServer):
    """Answers for models by name; a request that names none, or an unknown one, fails there."""

    models: dict[str, ModelProcess] = field(default_factory=dict)

    @classmethod
    def of(cls, address: Address, slots: dict[str, int], load_s: float) -> ModelRouter:
        models = {
            name: ModelProcess(address, count, load_s=load_s) for name, count in slots.items()
        }
        return cls(address, sum(slots.values()), models=models)

    def arrive(self, lease: Lease, model: str | None, at: float) -> None:
        self.leases[lease.id] = lease
        self.arrivals[lease.id] = at
        process = self.models.get(model or "")
        if process is not None:
            process.load(at)
            process.take(lease, at)

    def let_go(self, lease: Lease) -> None:
        super().let_go(lease)
        for process in self.models.values():
            process.let_go(lease)

    def linger(self, lease: Lease, until: float) -> None:
        for process in self.models.values():
            if lease.id in process.leases:
                weight_slots = min(lease.asked_slots, process.slots)
                process.leases.pop(lease.id)
                process.lingering.append((until, weight_slots))

    def restart(self, slots: int, *, is_blind: bool) -> None:
        super().restart(slots, is_blind=False)
        for process in self.models.values():
            process.leases.clear()
            process.foreign = 0
            process.unload()

    def is_overrun(self, now: float) -> bool:
        return any(process.busy_ours(now) > process.slots for process in self.models.values())

    def told(self, now: float) -> dict[str, Any]:
        loaded = [one for one in self.models.values() if one.is_loaded(now)]
        readings = tuple(
            ModelReading(
                name=name,
                is_loaded=one.is_loaded(now),
                is_loading=one.is_loading(now),
                slots=one.slots if one.is_loaded(now) else None,
                busy_slots=one.busy(now) if one.is_loaded(now) else None,
            )
            for name, one in self.models.items()
        )
        seen: dict[str, Any] = {"models": readings, "instance": str(self.process)}
        if loaded:
            busy_slots = sum(one.busy(now) for one in loaded)
            slots = sum(one.slots for one in loaded)
            return seen | {"sight": Sight.READY, "slots": slots, "busy_slots": busy_slots}
        if any(one.is_loading(now) for one in self.models.values()):
            return seen | {"sight": Sight.LOADING}
        return seen | {"sight": Sight.ASLEEP, "slots": 1, "busy_slots": 0}
