"""Decides whether an endpoint, as last observed, meets the constraints of a request.

Health, load and ejection are decided elsewhere: see `Endpoint.is_pickable` and the ranking.
"""

from collections.abc import Iterator
from typing import Final

from extproc.core.constraints import UNCONSTRAINED, UNRESOLVED, Constraints
from extproc.core.fleet.endpoint import Endpoint

EXCLUDED_BY_RULE: Final = "a rule excludes it"
"""A rule's own reason takes the place of this text."""


def is_eligible(constraints: Constraints, endpoint: Endpoint) -> bool:
    """Whether `why_not` yields nothing, computed faster."""
    spec = endpoint.spec
    if constraints.tier != spec.tier or constraints.pool != spec.pool:
        return False
    if constraints is UNCONSTRAINED:
        return True
    if constraints.allowed is not None and endpoint.address not in constraints.allowed:
        return False
    if constraints.by_rules is not None and endpoint.address not in constraints.by_rules:
        return False
    if constraints.model is not None and constraints.model not in endpoint.models_by_name:
        return False
    if constraints.model_name_on_wire is not None and not endpoint.takes_name(
        constraints.model_name_on_wire, constraints.model
    ):
        return False
    if constraints.adapter_numbers and not endpoint.has_adapters(constraints.adapter_numbers):
        return False
    if constraints.context_tokens and not has_context(constraints, endpoint):
        return False
    if constraints.is_loaded and not has_loaded(constraints, endpoint):
        return False
    if constraints.api and not endpoint.has_api(constraints.api):
        return False
    return constraints.adapter is None or constraints.adapter in endpoint.adapter_ids


def has_context(constraints: Constraints, endpoint: Endpoint) -> bool:
    """Whether its slots hold the prompt; assumed where their context is not known."""
    tokens = endpoint.context_tokens
    return tokens is None or tokens >= constraints.context_tokens


def has_loaded(constraints: Constraints, endpoint: Endpoint) -> bool:
    """Whether it has the model loaded, or is loading it; assumed of a model that is not known."""
    reading = endpoint.models_by_name.get(constraints.model or "")
    return reading is None or reading.is_loaded or reading.is_loading


def why_not(constraints: Constraints, endpoint: Endpoint) -> Iterator[str]:
    """The reasons why the endpoint cannot serve the request, as text; none if it can."""
    if constraints.tier != endpoint.spec.tier:
        yield f"it is of tier {endpoint.spec.tier}: only a spill sends requests there"
    if constraints.pool != endpoint.spec.pool and constraints != UNRESOLVED:
        its = f"in the pool {endpoint.spec.pool}" if endpoint.spec.pool else "in no pool"
        yield f"it is {its}, and the request is for the pool {constraints.pool}"
    if constraints == UNRESOLVED:
        yield "not every server has reported its adapters yet, and this may be the name of one"
    elif constraints.allowed is not None and endpoint.address not in constraints.allowed:
        yield "the gateway does not allow it"
    if constraints.by_rules is not None and endpoint.address not in constraints.by_rules:
        yield EXCLUDED_BY_RULE
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
        yield f"it lacks some of the adapters {numbers}"
    if not endpoint.has_api(constraints.api):
        yield f"{endpoint.runner or 'its server'} does not serve this path"
    if constraints.is_loaded and not has_loaded(constraints, endpoint):
        yield f"it does not have {constraints.model} loaded, and this request takes no slot"
    if not has_context(constraints, endpoint):
        yield (
            f"the prompt needs a longer context than its {endpoint.context_tokens} tokens; another "
            f"endpoint has {constraints.context_tokens}"
        )
