"""The true state of a router: each of its models is a process that must be loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from extproc.core.address import Address
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.slots.lease import Lease
from tests.core.model_server import NEVER, ModelServer


@dataclass
class ModelProcess(ModelServer):
    """One model of a router: loaded from `loaded_at` on; earlier requests wait for that."""

    load_s: float = 0.5
    loading_since: float = NEVER
    loaded_at: float = NEVER

    def is_loaded(self, now: float) -> bool:
        return self.loaded_at <= now

    def is_loading(self, now: float) -> bool:
        return self.loading_since <= now < self.loaded_at

    def is_unused(self, now: float) -> bool:
        self.forget_ended(now)
        return not self.tasks and not self.foreign

    def load(self, at: float) -> None:
        if self.loading_since == NEVER:
            self.loading_since, self.loaded_at = at, at + self.load_s

    def unload(self) -> None:
        self.loading_since = self.loaded_at = NEVER
        for id_ in [id_ for id_, task in self.tasks.items() if task.ends_at < NEVER]:
            del self.tasks[id_]

    def _weight_of(self, lease: Lease) -> int:
        """Each holds the slots that it asked for, not those of its lease."""
        return min(lease.asked_slots, self.slots)

    def busy_ours(self, now: float) -> int:
        return super().busy_ours(now) if self.is_loaded(now) else 0


@dataclass
class ModelRouter(ModelServer):
    """Serves models by name; a request that names none, or an unknown one, fails there."""

    models: dict[str, ModelProcess] = field(default_factory=dict)

    @classmethod
    def of(cls, address: Address, slots: dict[str, int], load_s: float) -> ModelRouter:
        models = {
            name: ModelProcess(address, count, load_s=load_s, model=name)
            for name, count in slots.items()
        }
        return cls(address, sum(slots.values()), models=models)

    def arrive(self, lease: Lease, model: str | None, at: float) -> None:
        super().take(lease, at)
        process = self.models.get(model or "")
        if process is not None:
            process.load(at)
            process.take(lease, at)

    def let_go(self, lease: Lease) -> None:
        super().let_go(lease)
        for process in self.models.values():
            process.let_go(lease)

    def linger(self, lease: Lease, until: float) -> None:
        super().linger(lease, until)
        for process in self.models.values():
            process.linger(lease, until)

    def restart(self, slots: int, *, is_blind: bool) -> None:
        super().restart(slots, is_blind=False)
        for process in self.models.values():
            process.restart(process.slots, is_blind=False)
            process.unload()

    def is_overrun(self, now: float) -> bool:
        return any(process.busy_ours(now) > process.slots for process in self.models.values())

    def report(self, now: float, *, is_late: bool = False) -> dict[str, Any]:
        loaded = [one for one in self.models.values() if one.is_loaded(now)]
        parts = {id(one): one.report(now, is_late=is_late) for one in loaded}
        readings = tuple(
            ModelReading(
                name=name,
                is_loaded=one.is_loaded(now),
                is_loading=one.is_loading(now),
                slots=one.slots if one.is_loaded(now) else None,
                busy_slots=parts[id(one)]["busy_slots"] if one.is_loaded(now) else None,
            )
            for name, one in self.models.items()
        )
        seen: dict[str, Any] = {"models": readings, "instance": str(self.process)}
        if loaded:
            busy_slots = sum(part["busy_slots"] for part in parts.values())
            slots = sum(one.slots for one in loaded)
            shown = tuple(one for part in parts.values() for one in part["slot_readings"])
            seen |= {"slots": slots, "busy_slots": busy_slots, "slot_readings": shown}
            return seen | {"status": ScrapeStatus.READY}
        if any(one.is_loading(now) for one in self.models.values()):
            return seen | {"status": ScrapeStatus.LOADING}
        return seen | {"status": ScrapeStatus.ASLEEP, "slots": 1, "busy_slots": 0}
