"""When requests spill to endpoints of tier 2, and which ones may."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.core.spill import SpillOptions
from extproc.settings.endpoint_section import Money
from extproc.settings.section import Section
from extproc.settings.values import LIST, Count, PositiveCount, Reloadable, Seconds


class SpillSettings(Section):
    """Requests that would wait too long go to endpoints of tier 2 (docs/tiers.md)."""

    objectives: Annotated[Reloadable[tuple[str, ...]], LIST] = ()
    """The objectives whose requests may spill. With keys, both must hold: clients name their
    objective themselves."""
    keys: Annotated[Reloadable[tuple[str, ...]], LIST] = ()
    """The clients whose requests may spill, named as in clients.keys_file."""
    after_wait_s: Reloadable[Seconds] = 10.0
    """A request spills if it is expected to wait longer than this in tier 1, in seconds."""
    slo_share: Reloadable[Annotated[float, Field(gt=0, le=10)] | None] = None
    """The same as a share of its objective's SLO, if any: `0.5` is half of slo.queue_ms, or else of
    slo.ttft_ms."""
    max_running: Reloadable[Count] = 8
    """The highest number of requests at once in tier 2."""
    max_requests_per_day: Reloadable[PositiveCount | None] = None
    """The highest number of requests to tier 2 in a day, by UTC. Requires usage.path."""
    max_cost_per_day: Reloadable[Money | None] = None
    """The cost of tier 2 in a day, by UTC, by the prices of its endpoints, of which each needs one;
    running requests may exceed it. Requires usage.path."""

    @model_validator(mode="after")
    def _check_named_once(self) -> Self:
        for name, values in (("objectives", self.objectives), ("keys", self.keys)):
            if "" in values:
                raise PydanticCustomError("empty", "{name} has an empty name", {"name": name})
        return self

    @property
    def has_day_bound(self) -> bool:
        """Whether a day's use closes tier 2."""
        return self.max_requests_per_day is not None or self.max_cost_per_day is not None

    def for_core(self) -> SpillOptions:
        """The same for the core."""
        return SpillOptions(
            objectives=frozenset(self.objectives),
            keys=frozenset(self.keys),
            after_wait_s=self.after_wait_s,
            slo_share=self.slo_share,
            max_running=self.max_running,
        )
