"""What a load took: from its decision, over the end of others' requests, to a served model."""

from collections.abc import Iterable
from dataclasses import dataclass

from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.wanted_models import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """A load that ended, in monotonic seconds. `displaced` are the models that left for it;
    `problem` is why it failed, empty if it did not."""

    machine: str
    model: str
    displaced: tuple[str, ...]
    reason: str
    decided_at: float
    began_at: float
    ended_at: float
    problem: str = ""

    @property
    def drain_s(self) -> float:
        """How long it waited for others to leave."""
        return self.began_at - self.decided_at

    @property
    def load_s(self) -> float:
        """What its server took to be ready."""
        return self.ended_at - self.began_at


@dataclass(slots=True)
class _Pending:
    change: Change
    displaced: tuple[str, ...]
    began_at: float | None = None


class LoadWatch:
    """Follows loads from their decisions. O(pending loads) a call; there are at most as many as
    models on machines."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], _Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def decided(self, changes: Iterable[Change]) -> None:
        """These models are to be loaded or unloaded, decided together."""
        leaving: dict[str, list[str]] = {}
        for change in changes:
            key = change.machine, change.model
            if change.is_load:
                displaced = tuple(leaving.pop(change.machine, ()))
                self._pending[key] = _Pending(change, displaced)
            else:
                self._pending.pop(key, None)
                leaving.setdefault(change.machine, []).append(change.model)

    def forgotten(self, machine: str) -> None:
        """The machine is gone."""
        for key in [key for key in self._pending if key[0] == machine]:
            del self._pending[key]

    def observed(self, machine: KeptMachine) -> list[LoadRecord]:
        """The states of a machine's models; returns the loads that ended."""
        ended = []
        for key, pending in list(self._pending.items()):
            if key[0] != machine.name or key[1] not in machine.models:
                continue
            status = machine.statuses[key[1]]
            since = max(pending.change.at, status.since)
            if status.state is KeptState.LOADING and pending.began_at is None:
                pending.began_at = since
            if status.state not in (KeptState.LOADED, KeptState.FAILED):
                continue
            if status.since < pending.change.at:
                continue  # from before the decision
            del self._pending[key]
            began_at = pending.began_at
            if began_at is None:  # it was too short to be reported
                began_at = max(pending.change.at, since - (status.load_s or 0.0))
            ended.append(
                LoadRecord(
                    machine=machine.name,
                    model=key[1],
                    displaced=pending.displaced,
                    reason=pending.change.reason,
                    decided_at=pending.change.at,
                    began_at=began_at,
                    ended_at=since,
                    problem=status.problem or "it failed"
                    if status.state is KeptState.FAILED
                    else "",
                )
            )
        return ended
