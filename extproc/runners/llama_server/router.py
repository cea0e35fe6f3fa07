"""The models of a llama-server in router mode. Pure: lists and counts in, readings out.

A router has no slots of its own; each loaded model is a process with some. Only loaded
models are scraped, and those that may fall asleep by the rules of `idle_sleep.py`.
A router with nothing loaded offers one slot: the request that takes it loads a model.
"""

from dataclasses import dataclass
from typing import Final

from extproc.core.observation import Issue, ModelReading, ModelState, RouterReading, ScrapeStatus
from extproc.runners import issues
from extproc.runners.llama_server.idle_sleep import IdleSleepTracker
from extproc.runners.llama_server.parse import ModelEntry
from extproc.runners.llama_server.slots_request import SlotCounts
from extproc.runners.probe import ScrapePriority, SleepTrial

RUNNING: Final = (ModelState.LOADED, ModelState.LOADING, ModelState.SLEEPING)
"""The models that count towards the router's limit."""


@dataclass(slots=True, kw_only=True)
class _Model:
    entry: ModelEntry
    sleep: IdleSleepTracker
    slots: int | None = None
    busy_slots: int | None = None


class RouterModels:
    """The state of one router's models, from its last list and the counts since."""

    def __init__(self, trial: SleepTrial, *, is_managed: bool = False) -> None:
        """`is_managed`: somebody else loads models where the router does not."""
        self._trial = trial
        self._is_managed = is_managed
        self._models: dict[str, _Model] = {}
        self._autoloads = True
        self.reading: RouterReading | None = None
        """What the router said of itself with its last list."""
        self.leaving: frozenset[str] = frozenset()
        """Models whose /slots is not requested, because they are about to be unloaded: a server
        that ends leaves the request open, and waits for its end."""

    def start_process(self) -> None:
        """Forget the previous process, because another one serves the address now."""
        self._models = {}
        self._autoloads = True
        self.reading = None

    def list(
        self,
        entries: tuple[ModelEntry, ...],
        *,
        autoloads: bool,
        max_models: int = 0,
        listed_at: float = 0.0,
        is_counting: bool = False,
    ) -> None:
        """Apply a new list; models that are no longer in it are forgotten."""
        self._autoloads = autoloads
        self._models = {entry.name: self._updated(entry) for entry in entries}
        self.reading = RouterReading(
            autoloads=autoloads,
            max_models=max_models,
            running=frozenset(entry.name for entry in entries if entry.status in RUNNING),
            listed_at=listed_at,
            is_counting=is_counting,
        )

    def _updated(self, entry: ModelEntry) -> _Model:
        model = self._models.get(entry.name)
        if model is None or model.entry.may_sleep != entry.may_sleep:
            sleep = IdleSleepTracker(self._trial, declared=entry.may_sleep)
            model = _Model(entry=entry, sleep=sleep)
        elif entry.status is ModelState.LOADED and model.entry.status is not entry.status:
            model.sleep.start_process()  # reloaded or woken: count its slots
        model.entry = entry
        if entry.status is not ModelState.LOADED:
            model.busy_slots = None
        return model

    def models_to_request(self, now: float, priority: ScrapePriority) -> tuple[str, ...]:
        """The loaded models whose /slots may be requested now."""
        return tuple(
            name
            for name, model in self._models.items()
            if model.entry.status is ModelState.LOADED
            and name not in self.leaving
            and model.sleep.may_request_slots(now, priority)
        )

    def count(self, counts: SlotCounts) -> None:
        """Apply the counts of the requested models."""
        for name, (slots, busy_slots) in (counts.by_model or {}).items():
            model = self._models.get(name)
            if model is not None:
                model.slots, model.busy_slots = slots, busy_slots
                model.sleep.on_slots(counts.began_at, busy_slots)

    @property
    def status(self) -> ScrapeStatus:
        statuses = {model.entry.status for model in self._models.values()}
        if ModelState.LOADED in statuses:
            return ScrapeStatus.READY
        if ModelState.LOADING in statuses:
            return ScrapeStatus.LOADING
        is_waiting = self._autoloads or ModelState.SLEEPING in statuses
        return ScrapeStatus.ASLEEP if is_waiting else ScrapeStatus.READY

    @property
    def slots(self) -> int | None:
        """Slots of the loaded models, else of the sleeping ones, else one that loads a model."""
        for status in (ModelState.LOADED, ModelState.SLEEPING):
            known = [m.slots for m in self._models.values() if m.entry.status is status]
            if known:
                reported = [slots for slots in known if slots is not None]
                return sum(reported) if reported else None
        return 1 if self._autoloads else 0

    @property
    def busy_slots(self) -> int:
        """Busy slots of the loaded models; a model that was not requested keeps its last count."""
        return sum(model.busy_slots or 0 for model in self._models.values())

    def readings(self) -> tuple[ModelReading, ...]:
        return tuple(
            ModelReading(
                name=name,
                aliases=model.entry.aliases,
                is_loaded=model.entry.status is ModelState.LOADED,
                is_loading=model.entry.status is ModelState.LOADING,
                reported=model.entry.status,
                slots=model.slots,
                busy_slots=model.busy_slots,
                shared_tokens=_shared_tokens(model.entry),
            )
            for name, model in self._models.items()
        )

    def issues(self) -> tuple[Issue, ...]:
        failed = tuple(
            name for name, model in self._models.items() if model.entry.status is ModelState.FAILED
        )
        found = [issues.model_failed(failed)] if failed else []
        if not self._is_managed and self.status is ScrapeStatus.READY and self.slots == 0:
            found.append(issues.no_model_loaded())
        return tuple(found)


def _shared_tokens(entry: ModelEntry) -> int | None:
    return None if entry.context is None else entry.context.shared_tokens(entry.slot_tokens)
