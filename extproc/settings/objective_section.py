"""The services that share the fleet, and the names of models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from extproc.settings.section import Section

Millis = Annotated[int, Field(ge=1, le=3_600_000)]


class SloSettings(Section):
    """What an objective promises."""

    ttft_ms: Millis | None = Field(
        default=None, description="The first token within so many milliseconds, waiting included."
    )
    queue_ms: Millis | None = Field(default=None, description="A slot within so many milliseconds.")


class ObjectiveSettings(Section):
    """A service: chosen by the header x-gateway-inference-objective, or by its models. Of two
    of one class the one whose promise (`slo`) was kept less often in the last five minutes is
    served first."""

    criticality: Literal["critical", "standard", "sheddable"] = Field(
        default="standard",
        description="Critical goes before standard. Sheddable never waits, it is refused with 429.",
    )
    slo: SloSettings = SloSettings()
    weight: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="Its share of slot-seconds against others of its class without a promise.",
    )
    models: tuple[str, ...] = Field(
        default=(), description="Requests for these models belong to it unless they name another."
    )


def _as_weights(value: Any) -> Any:
    """A plain name is an alias: all of the weight on one model."""
    if isinstance(value, str):
        return {value: 1.0}
    if isinstance(value, dict) and not value:
        raise PydanticCustomError("models", "name at least one model with its weight")
    return value


Targets = Annotated[dict[str, Annotated[float, Field(gt=0, le=1e6)]], BeforeValidator(_as_weights)]
