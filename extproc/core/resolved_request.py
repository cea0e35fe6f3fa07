"""A request, understood in the terms of the fleet."""

from __future__ import annotations

from typing import NamedTuple

from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.objective import NO_OBJECTIVE, Objective


class ResolvedRequest(NamedTuple):
    """What it may use, whom it serves, and the `model` that its model's name stands for."""

    constraints: Constraints = UNCONSTRAINED
    objective: Objective = NO_OBJECTIVE
    model: str | None = None


UNCONSTRAINED_REQUEST = ResolvedRequest()
