"""The services that share the fleet, and the names of models."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from extproc.core.constraints import NO_POOL, qualified
from extproc.core.objective import NO_OBJECTIVE, Criticality, Objective, Objectives
from extproc.settings.section import Section

Millis = Annotated[int, Field(ge=1, le=3_600_000)]


class SloSettings(Section):
    """The SLO of an objective."""

    ttft_ms: Millis | None = None
    """The SLO for the time to the first token in milliseconds, with the time in the queue."""
    queue_ms: Millis | None = None
    """The SLO for the time in the queue in milliseconds."""


class ObjectiveSettings(Section):
    """A service that requests select with the header x-gateway-inference-objective or by their
    model. Of two of the same criticality, the one with the lower SLO attainment in the last five
    minutes is served first."""

    criticality: Literal["critical", "standard", "sheddable"] = "standard"
    """Critical requests go before standard ones. Sheddable ones are never queued: 429 if no slot is
    free."""
    slo: SloSettings = SloSettings()
    weight: float = Field(default=1.0, gt=0, le=1000)
    """Its share of slot-seconds, relative to other objectives of the same criticality without an
    SLO."""
    models: tuple[str, ...] = ()
    """Requests for these models belong to this objective, unless they name another one."""


def objectives_for_core(
    objectives: Mapping[str, ObjectiveSettings], *, pool: str = NO_POOL, is_own: bool = False
) -> Objectives:
    """The same for the core, where times are seconds; models name their objective. Of a `pool` they
    are its own (`is_own`), or those that pools have in common."""
    return Objectives(
        by_name={
            name: Objective(
                name=qualified(pool, name) if is_own else name,
                pool=pool,
                criticality=Criticality[one.criticality.upper()],
                ttft_s=None if one.slo.ttft_ms is None else one.slo.ttft_ms / 1000,
                queue_s=None if one.slo.queue_ms is None else one.slo.queue_ms / 1000,
                weight=one.weight,
            )
            for name, one in objectives.items()
        },
        by_model={model: name for name, one in objectives.items() for model in one.models},
        default=Objective(pool=pool) if pool else NO_OBJECTIVE,
    )


def _as_weights(value: Any) -> Any:
    """A plain name is an alias: one model with all of the weight."""
    if isinstance(value, str):
        return {value: 1.0}
    if isinstance(value, dict) and not value:
        raise PydanticCustomError("models", "name at least one model with its weight")
    return value


Targets = Annotated[dict[str, Annotated[float, Field(gt=0, le=1e6)]], BeforeValidator(_as_weights)]
