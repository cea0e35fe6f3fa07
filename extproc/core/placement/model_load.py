"""The load that requests for a model wait for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoad:
    """A load that is expected to end at `ready_at` (monotonic seconds), or without it one that has
    not begun: nobody has asked for the model, or others with work delay it (`is_delayed`).
    `where` names its machine, or those on which it could be loaded."""

    model: str
    where: str
    ready_at: float | None = None
    is_delayed: bool = False

    @property
    def subject(self) -> str:
        """What requests wait for, without the time."""
        delay = " when others leave memory for it" if self.is_delayed else ""
        return f"waits for {self.model} to be loaded at {self.where}{delay}"

    def note(self, now: float) -> str:
        """The same words for operators and clients."""
        if self.ready_at is None:
            return self.subject
        return f"{self.subject}, about {max(0.0, self.ready_at - now):.0f} s"


def any_of(names: Sequence[str]) -> str:
    """Some of several names, in words."""
    if len(names) > MAX_NAMED:
        return f"one of {len(names)} machines"
    return " or ".join(names)
