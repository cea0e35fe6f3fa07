"""Whether an endpoint, as last observed, can serve a request at all: the one rule about it.

Health, load and ejection are not asked here: see `Endpoint.is_pickable` and the ranking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.constraints import UNRESOLVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from extproc.core.constraints import Constraints
    from extproc.core.fleet.endpoint import Endpoint


def is_eligible(constraints: Constraints, endpoint: Endpoint) -> bool:
    """Whether `why_not` has nothing to say, decided faster."""
    if constraints.allowed is not None and endpoint.address not in constraints.allowed:
        return False
    if constraints.model is not None and constraints.model not in endpoint.models_by_name:
        return False
    if constraints.model_name_on_wire is not None and not endpoint.takes_name(
        constraints.model_name_on_wire, constraints.model
    ):
        return False
    if constraints.adapter_numbers and not endpoint.has_adapters(constraints.adapter_numbers):
        return False
    return constraints.adapter is None or constraints.adapter in endpoint.adapter_ids


def why_not(constraints: Constraints, endpoint: Endpoint) -> Iterator[str]:
    """Each reason why the endpoint cannot serve it, in words for people; none where it can."""
    if constraints == UNRESOLVED:
        yield "not every server has told its adapters yet, and this may be the name of one"
    elif constraints.allowed is not None and endpoint.address not in constraints.allowed:
        yield "it is not among those that the gateway allows"
    if constraints.model is not None and constraints.model not in endpoint.models_by_name:
        yield f"it does not serve {constraints.model}"
    if constraints.model_name_on_wire is not None and not endpoint.takes_name(
        constraints.model_name_on_wire, constraints.model
    ):
        yield f"it reads the name {constraints.model_name_on_wire}, which it does not know"
    if constraints.adapter is not None and constraints.adapter not in endpoint.adapter_ids:
        yield f"it has no adapter {constraints.adapter}"
    if not endpoint.has_adapters(constraints.adapter_numbers):
        numbers = ", ".join(map(str, sorted(constraints.adapter_numbers)))
        yield f"it has not all of the adapters {numbers}"
