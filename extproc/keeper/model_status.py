"""The state of one model on a machine with a keeper."""

from dataclasses import dataclass
from enum import Enum


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
