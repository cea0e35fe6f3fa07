"""Settings of outlier detection."""

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.settings.section import Section
from extproc.settings.values import Count, SomeSeconds, Whole


class OutlierSettings(Section):
    """Endpoints that fail requests while their health checks succeed are ejected: they get only
    single trial requests until one succeeds."""

    failures: Count = 3
    """The number of consecutive failed requests that eject an endpoint: 5xx responses, lost
    connections, or 503 from an endpoint that scrapes show as healthy. 4xx responses do not count,
    and neither do failures of one kind of request (a path, a grammar, tools, images) if the other
    kinds succeed there. 0 disables ejection."""
    backoff_s: SomeSeconds = 2.0
    """Seconds from an ejection to the first trial request. Each failed trial doubles it."""
    max_backoff_s: SomeSeconds = 60.0
    """The longest time between two trial requests, in seconds. After this much time in good health,
    one doubling is reverted."""
    max_ejected_percent: Whole = Field(default=50, ge=0, le=100)
    """The largest share of the serving endpoints that can be ejected at the same time, in percent.
    The last endpoint that serves a model is never ejected."""

    @model_validator(mode="after")
    def _check_backoff(self) -> Self:
        if self.backoff_s > self.max_backoff_s:
            raise PydanticCustomError("order", "backoff_s must not exceed max_backoff_s")
        return self
