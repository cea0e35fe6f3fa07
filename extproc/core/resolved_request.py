"""A request after its names are resolved."""

from typing import NamedTuple

from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.objective import NO_OBJECTIVE, Objective


class ResolvedRequest(NamedTuple):
    """Its constraints, its objective, and the `model` that its model name stands for."""

    constraints: Constraints = UNCONSTRAINED
    objective: Objective = NO_OBJECTIVE
    model: str | None = None


UNCONSTRAINED_REQUEST = ResolvedRequest()
