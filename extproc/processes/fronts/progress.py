"""Says that work which takes long goes on."""

from collections.abc import Callable
from typing import Final

STEPS: Final = 64


class Progress:
    """`on_progress` is called once in `STEPS` steps: a process gives a sign of life then, as its
    event loop does not come to it."""

    __slots__ = ("_steps", "on_progress")

    def __init__(self) -> None:
        self.on_progress: Callable[[], None] | None = None
        self._steps = 0

    def step(self) -> None:
        """A part of the work is done."""
        self._steps += 1
        if not self._steps % STEPS and self.on_progress is not None:
            self.on_progress()
