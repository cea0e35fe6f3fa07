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


def is_eligible(demand: Constraints, endpoint: Endpoint) -> bool:
    """Whether `why_not` has nothing to say, decided faster."""
    if demand.allowed is not None and endpoint.address not in demand.allowed:
        return False
    if demand.model is not None and demand.model not in endpoint.models_by_name:
        return False
    if demand.model_name_on_wire is not None and not endpoint.takes_name(
        demand.model_name_on_wire, demand.model
    ):
        return False
    if demand.adapter_numbers and not endpoint.has_adapters(demand.adapter_numbers):
        return False
    return demand.adapter is None or demand.adapter in endpoint.adapter_ids


def why_not(demand: Constraints, endpoint: Endpoint) -> Iterator[str]:
    """Each reason why the endpoint cannot serve it, in words for people; none where it can."""
    if demand == UNRESOLVED:
        yield "not every server has told its adapters yet, and this may be the name of one"
    elif demand.allowed is not None and endpoint.address not in demand.allowed:
        yield "it is not among those that the gateway allows"
    if demand.model is not None and demand.model not in endpoint.models_by_name:
        yield f"it does not serve {demand.model}"
    if demand.model_name_on_wire is not None and not endpoint.takes_name(
        demand.model_name_on_wire, demand.model
    ):
        yield f"it reads the name {demand.model_name_on_wire}, which it does not know"
    if demand.adapter is not None and demand.adapter not in endpoint.adapter_ids:
        yield f"it has no adapter {demand.adapter}"
    if not endpoint.has_adapters(demand.adapter_numbers):
        numbers = ", ".join(map(str, sorted(demand.adapter_numbers)))
        yield f"it has not all of the adapters {numbers}"
