"""What is asked of models: queued requests, and the use of what is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDemand:
    """The queued requests for one model. `waited_s` is the sum of the seconds that they wait, and
    `context_tokens` the context that the longest prompt needs, 0 if any does."""

    waiting: int = 0
    longest_wait_s: float = 0.0
    waited_s: float = 0.0
    context_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCounts:
    """How many servers a model needs (`wanted`), how many it has without any request (`least`), and
    how many without a keeper serve it (`elsewhere`)."""

    wanted: int = 1
    least: int = 0
    elsewhere: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUse:
    """The requests that run on one machine's server of a model, and the seconds since there was
    one; infinite if there never was."""

    running: int = 0
    idle_s: float = inf


NO_DEMAND: Final = ModelDemand()
NO_USE: Final = ModelUse()
ONE_SERVER: Final = ServerCounts()
Demands = Mapping[str, ModelDemand]
"""By model name."""
Servers = Mapping[str, ServerCounts]
"""The same."""
