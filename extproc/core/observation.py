"""The result of one scrape: the only input of the ledger from outside."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from extproc.core.address import Address

MAX_COUNT = 2**40
"""More tokens than any context holds, and more requests than any server takes."""
MAX_SLOTS = 65_536
"""More slots than any llama-server runs; a larger number is a misread, not a large server."""
MAX_ENTRIES = 1_024
"""Entries of each kind in one scrape (models, adapters, busy slots); the first ones are used."""
MAX_TEXT_CHARS = 512
"""The length of one name in a scrape."""


class ObservationError(ValueError):
    """An impossible observation (negative counts, an answer before its request)."""


class ScrapeStatus(Enum):
    """The result of a scrape in one word."""

    READY = "ready"  # it answered and serves
    LOADING = "loading"  # it answered 503: its model is not loaded yet
    ASLEEP = "asleep"  # it answers, but its model is unloaded until a request comes
    UNREACHABLE = "unreachable"  # the connection was refused or the host is gone
    FAILED = "failed"  # it was reached and gave no usable answer (timeout, garbage, 5xx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A problem that an operator should fix: a stable `code`, a message, and the remedy."""

    code: str
    message: str
    remedy: str

    def __str__(self) -> str:
        """As the log has it."""
        return f"{self.code}: {self.message}; {self.remedy}"


class ModelState(Enum):
    """The state of a model on one server. If servers differ, a list shows the first of these."""

    LOADED = "loaded"
    SLEEPING = "sleeping"  # idle for long: the next request loads it again
    LOADING = "loading"
    DOWNLOADING = "downloading"
    UNLOADED = "unloaded"
    FAILED = "failed"  # it could not be loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """One model that a server reports; `slots` and `busy_slots` only if reported per model.

    `is_loading`: a router is loading the model, for any client. `is_closed`: no new request may go
    to it there. `context_tokens` is what a slot will hold, of a model that is not loaded.
    `shared_tokens` is the context that its slots share, 0 if each has its own.
    `may_be_loading`: the server says that a model is loaded from the beginning of its load on.
    `reported` is the state in the server's own words, None where it only says whether the model is
    loaded.
    """

    name: str
    aliases: tuple[str, ...] = ()
    is_loaded: bool = True
    is_loading: bool = False
    may_be_loading: bool = False
    slots: int | None = None
    busy_slots: int | None = None
    is_closed: bool = False
    context_tokens: int | None = None
    shared_tokens: int | None = None
    reported: ModelState | None = None

    @property
    def state(self) -> ModelState:
        """Its state, as a list of models shows it."""
        if self.is_loaded:
            return ModelState.LOADED
        if self.reported is not None and self.reported is not ModelState.LOADED:
            return self.reported
        return ModelState.LOADING if self.is_loading else ModelState.UNLOADED


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterReading:
    """What a router says of itself: whether it loads models by itself, how many at most (0: no
    limit), and which of them hold a place, loaded, loading or asleep. `listed_at` is when the
    request for its list was sent; with `is_counting` a request for slots was still open then."""

    autoloads: bool
    max_models: int
    running: frozenset[str]
    listed_at: float
    is_counting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReading:
    """One busy slot. `task_id` grows with each request of a server process.

    `cached_tokens` of the prompt were found in the server's cache, `processed_tokens` were
    processed so far, in whole batches; `decoded_tokens` were generated so far, at most
    `remaining_tokens` more will be (None: no limit). `prompt_tokens` is what the slot holds now:
    the prompt as far as its batches began, and the response. `model` is the router's model of the
    slot, by its own name; empty if the server has one model.
    """

    task_id: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    processed_tokens: int | None = None
    decoded_tokens: int | None = None
    remaining_tokens: int | None = None
    model: str = ""

    @property
    def whole_prompt_tokens(self) -> int | None:
        """The length of the prompt; None while it is not known, during the prefill: before its
        first batch a slot still holds what the previous task has left."""
        cached, processed = self.cached_tokens, self.processed_tokens
        if cached is None or processed is None:
            return self.prompt_tokens
        return cached + processed if self.decoded_tokens else None

    @property
    def cached_share(self) -> float | None:
        """The part of the prompt that was found in the cache; None while it is not known."""
        if self.cached_tokens == 0 and self.processed_tokens:
            return 0.0  # known after the first batch; before it every task shows 0
        whole = self.whole_prompt_tokens
        return self.cached_tokens / whole if whole and self.cached_tokens is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTask:
    """What an idle slot still shows of its last task: `held_tokens` of its prompt and its response
    were processed. `model` is as in `SlotReading`."""

    task_id: int
    held_tokens: int
    model: str = ""


class Counter(NamedTuple):
    """A sum since the server's start. It is off by at most `rounding`: large ones are shown with
    six digits."""

    value: int
    rounding: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounters:
    """What a server has counted over all its tasks: tokens of prompts that it processed, and that
    it found in its cache, both as they come, and the generated ones of tasks that have ended. It
    was asked at `began_at` and answered before its slots were requested."""

    began_at: float
    processed: Counter
    cached: Counter
    generated: Counter


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterReading:
    """One LoRA adapter of a server: its number there, and its file's stem as its name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one scrape of the server at `address`.

    `began_at` and `answered_at` are monotonic seconds of this process: the requests were sent at
    the first, the response that counted `busy_slots` was complete at the second. `slots` is the
    server's slot count, None if it was not reported this time (the last known one stays).
    `busy_slots` is how many of them were processing, None if the server does not report its slots.
    `instance` changes when another process took over the address. `slot_readings` are the busy
    slots as far as they were reported, `ended_tasks` the last ones of idle slots. `context_tokens`
    is the capacity of one slot (the largest of a router's), and `shared_tokens` that of the context
    that all slots share, 0 if each has its own, None if nothing says it; `adapters` is None if they
    were not reported, and `awaits_adapters` then says that the next scrapes request them again.
    `router` is that of a server in router mode, as far as it was reported. `counters` are the
    server's own, if they were wanted. `runner` is the kind of the server, for people; `apis` are
    the names of the APIs that it has besides the one that all have, None if that is not known.
    With `is_full` it has no room in its cache for further requests, whatever slots are free. With
    `is_machine_on` something at its address has answered or refused, if no server of models.

    Raises `ObservationError` for impossible numbers.
    """

    address: Address
    began_at: float
    answered_at: float
    status: ScrapeStatus
    slots: int | None = None
    busy_slots: int | None = None
    models: tuple[ModelReading, ...] = ()
    issues: tuple[Issue, ...] = ()
    instance: str | None = None
    slot_readings: tuple[SlotReading, ...] = ()
    ended_tasks: tuple[EndedTask, ...] = ()
    context_tokens: int | None = None
    shared_tokens: int | None = None
    adapters: tuple[AdapterReading, ...] | None = None
    awaits_adapters: bool = False
    router: RouterReading | None = None
    counters: TokenCounters | None = None
    runner: str = ""
    apis: frozenset[str] | None = None
    is_full: bool = False
    is_machine_on: bool = False

    def __post_init__(self) -> None:
        if not self.began_at <= self.answered_at:
            raise ObservationError(
                f"{self.address}: answered at {self.answered_at}, before {self.began_at}"
            )
        self._check_slots(self.slots, self.busy_slots)
        for model in self.models:
            self._check_slots(model.slots, model.busy_slots)

    @property
    def has_model_pools(self) -> bool:
        """Whether it lists the models of a router: as the server said itself, or by its models."""
        return bool(self.models) and (self.router is not None or is_router(self.models))

    @property
    def held_tokens(self) -> int:
        """What all of its slots hold together, busy and idle ones."""
        busy = sum(reading.prompt_tokens or 0 for reading in self.slot_readings)
        return busy + sum(task.held_tokens for task in self.ended_tasks)

    def _check_slots(self, slots: int | None, busy_slots: int | None) -> None:
        if slots is not None and not 0 <= slots <= MAX_SLOTS:
            raise ObservationError(f"{self.address}: {slots} slots; 0 to {MAX_SLOTS} can be")
        if busy_slots is not None and not 0 <= busy_slots <= MAX_SLOTS:
            raise ObservationError(f"{self.address}: {busy_slots} busy slots cannot be")


def is_router(models: tuple[ModelReading, ...]) -> bool:
    """Whether a router reported these models: plain servers report no slots by model."""
    return any(model.slots is not None or not model.is_loaded for model in models)
