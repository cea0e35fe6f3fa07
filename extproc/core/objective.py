"""Objectives: the services that share a fleet, with their criticality, weight and SLO."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from extproc.core.constraints import NO_POOL


class Criticality(IntEnum):
    """The importance of a request; a smaller value is served first and rejected last."""

    CRITICAL = 0
    STANDARD = 1
    SHEDDABLE = 2

    @property
    def label(self) -> str:
        """The name in settings, metrics and for display."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One service. `ttft_s` and `queue_s` are its SLO, in seconds; None sets none.

    `weight` is its share against the others of its criticality that have no SLO. `pool` is the pool
    whose requests it is for, empty where no pools are configured: use is shared within a pool.
    """

    name: str = ""
    criticality: Criticality = Criticality.STANDARD
    ttft_s: float | None = None
    queue_s: float | None = None
    weight: float = 1.0
    pool: str = NO_POOL

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(f"objective {self.name!r}: its weight must be above 0")

    @property
    def has_slo(self) -> bool:
        return self.ttft_s is not None or self.queue_s is not None


NO_OBJECTIVE = Objective()


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """All objectives by name, and the models that imply one. `default` is that of all others."""

    by_name: Mapping[str, Objective] = field(default_factory=dict)
    by_model: Mapping[str, str] = field(default_factory=dict)
    default: Objective = NO_OBJECTIVE

    def of(self, name: str | None, model: str | None) -> Objective:
        """The objective of that name, else the model's, else the default. An unknown name counts
        as none: a typing error must not change the priority."""
        if name is not None:
            named = self.by_name.get(name)
            if named is not None:
                return named
        if model is not None:
            implied = self.by_model.get(model)
            if implied is not None:
                return self.by_name.get(implied, self.default)
        return self.default
