"""The state of one model on a machine with a keeper, and the trial of another command."""

import asyncio
from dataclasses import dataclass, field
from enum import Enum

from extproc.keeper.models_file import ModelEntry


class ModelState(Enum):
    """The state of one model on this machine."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"
    RESTARTING = "restarting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """What others see of a model. `since` is monotonic; `load_s` is None before the first load.
    `detail` has the last lines of the log where there is a problem."""

    name: str
    state: ModelState
    since: float
    load_s: float | None
    exits: int
    problem: str
    detail: str


@dataclass(slots=True, eq=False)
class Trial:
    """A server that is started in another way must prove itself, or its model goes back.

    `before` is what the model goes back to. `result` is None for a proof, else why it failed.
    """

    before: ModelEntry
    result: asyncio.Future[str | None] = field(default_factory=asyncio.Future)

    def end(self, problem: str | None) -> None:
        """The first end counts."""
        if not self.result.done():
            self.result.set_result(problem)
