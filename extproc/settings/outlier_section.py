"""How endpoints are found out that fail requests while they look healthy."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.settings.section import Section
from extproc.settings.values import Count, SomeSeconds, Whole


class OutlierSettings(Section):
    """Endpoints that fail requests while their health checks succeed are ejected: they get no
    requests but single trial requests until one succeeds."""

    failures: Count = Field(
        default=3,
        description="How many failed requests in a row eject an endpoint: 5xx answers, lost "
        "connections, 503 although it looks healthy. 4xx never counts, nor does a kind of request "
        "(a path, a grammar, tools, images) that alone fails there. 0 ejects nobody.",
    )
    backoff_s: SomeSeconds = Field(
        default=2.0,
        description="Seconds from an ejection to the first trial request. Doubled with each trial "
        "that fails.",
    )
    max_backoff_s: SomeSeconds = Field(
        default=60.0,
        description="The longest time between two trial requests, in seconds. So much time in "
        "good health takes one doubling back.",
    )
    max_ejected_percent: Whole = Field(
        default=50,
        ge=0,
        le=100,
        description="The largest share of the serving endpoints that may be ejected at the same "
        "time, in percent. The last one that serves a model never is.",
    )

    @model_validator(mode="after")
    def _check_backoff(self) -> Self:
        if self.backoff_s > self.max_backoff_s:
            raise PydanticCustomError("order", "backoff_s must not exceed max_backoff_s")
        return self
