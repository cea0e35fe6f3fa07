"""What is asked of models: queued requests, and the use of what is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDemand:
    """The queued requests for one model. `waited_s` is the sum of the seconds that they wait."""

    waiting: int = 0
    longest_wait_s: float = 0.0
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUse:
    """The requests that run on one machine's server of a model, and the seconds since there was
    one; infinite if there never was."""

    running: int = 0
    idle_s: float = inf


NO_DEMAND: Final = ModelDemand()
NO_USE: Final = ModelUse()
Demands = Mapping[str, ModelDemand]
"""By model name."""
