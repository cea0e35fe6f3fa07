"""What one look at a server told: the only thing that the outside world feeds the ledger with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from extproc.core.address import Address

MAX_SLOTS = 65_536
"""More slots than any llama-server runs; a server that claims more is misread, not huge."""
MAX_ENTRIES = 1_024
"""Of each kind that one look tells of, models, adapters, busy slots; the first ones are kept."""
MAX_TEXT_CHARS = 512
"""Of one name that it tells."""


class ObservationError(ValueError):
    """An observation that cannot be true (negative counts, an answer before its question)."""


class ScrapeStatus(Enum):
    """How the look ended."""

    READY = "ready"  # it answered and serves
    LOADING = "loading"  # it answered 503: its model is not there yet
    ASLEEP = "asleep"  # it answers, its model is unloaded until a request comes
    UNREACHABLE = "unreachable"  # the connection was refused or the host is gone
    FAILED = "failed"  # it was reached and gave no usable answer (timeout, garbage, 5xx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """Something that an operator should mend: a stable `code`, what is wrong, and the remedy."""

    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """One model that a server reports; `slots` and `busy_slots` only where told per model.

    `is_loading` tells of a router that it is getting the model ready, for whoever asked for it.
    """

    name: str
    aliases: tuple[str, ...] = ()
    is_loaded: bool = True
    is_loading: bool = False
    slots: int | None = None
    busy_slots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReading:
    """One busy slot. `task_id` grows with each request of a server process.

    `cached_tokens` of the prompt were found in the server's cache, `processed_tokens` were read
    so far, counted by whole batches; `decoded_tokens` were generated so far, at most
    `remaining_tokens` more will be (None: no limit). `prompt_tokens` is all that the slot holds
    now: the prompt as far as its batches began, and the answer. `model` is the router's model
    whose slot it is, by its own name; empty where a server has one.
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
        """The prompt's length; None while it is not known because it is still being read."""
        cached, processed = self.cached_tokens, self.processed_tokens
        if cached is None or processed is None:
            return self.prompt_tokens
        if self.decoded_tokens:
            return cached + processed
        return None if cached else self.prompt_tokens  # nothing was found: of however much


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterReading:
    """One LoRA adapter that a server holds: its number there, and its file's stem as its name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The answer of one look at the server at `address`.

    `began_at` and `answered_at` are monotonic seconds of this process: the questions
    were sent at the first, the answer that counted `busy_slots` was complete at the second.
    `slots` is the server's slot count, None when it was not told this time (the last one
    known stays). `busy_slots` is how many of them were processing, None when the server
    does not show its slots. `instance` changes when another process took over the address.
    `slot_readings` are the busy slots as far as they were shown, `context_tokens` what one slot
    holds at most (the largest of a router's); `adapters` is None when they were not told, and
    `awaits_adapters` then tells that the next looks will ask for them again.

    Raises `ObservationError` when built from impossible numbers.
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
    context_tokens: int | None = None
    adapters: tuple[AdapterReading, ...] | None = None
    awaits_adapters: bool = False

    def __post_init__(self) -> None:
        if not self.began_at <= self.answered_at:
            raise ObservationError(
                f"{self.address}: answered at {self.answered_at}, before {self.began_at}"
            )
        if self.slots is not None and not 0 <= self.slots <= MAX_SLOTS:
            raise ObservationError(f"{self.address}: {self.slots} slots; 0 to {MAX_SLOTS} can be")
        if self.busy_slots is not None and not 0 <= self.busy_slots <= MAX_SLOTS:
            raise ObservationError(f"{self.address}: {self.busy_slots} busy slots cannot be")


def is_router(models: tuple[ModelReading, ...]) -> bool:
    """Whether a router reported these models: plain servers report no slots by model."""
    return any(model.slots is not None or not model.is_loaded for model in models)
