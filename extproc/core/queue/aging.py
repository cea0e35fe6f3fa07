"""Aging: the rule that keeps requests of every criticality from starvation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Aging:
    """Every `every`-th slot that an endpoint assigns to the queue goes to the request that arrived
    first, once that has waited for `after_s` seconds. `every` must be at least 2."""

    every: int = 10
    after_s: float = 5.0
