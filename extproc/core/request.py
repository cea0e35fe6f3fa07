"""What one HTTP request asks of the fleet, as far as a decision needs to know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that takes slots.

    `weight_slots` is how many slots it takes at once (at least 1; an endpoint with fewer
    slots gives it all it has). `timeout_s` is how long it may wait in line; 0 means
    that it is served at once or not at all. Raises `ValueError` for a weight below 1.
    """

    id: str
    timeout_s: float
    weight_slots: int = 1

    def __post_init__(self) -> None:
        if self.weight_slots < 1:
            raise ValueError(f"a request cannot weigh {self.weight_slots} slots")
