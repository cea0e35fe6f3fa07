"""How Coxswain looks at the servers, and how it counts their slots."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.settings.section import Section
from extproc.settings.values import PathPrefix, PositiveCount, Seconds, Share, SomeSeconds


class LedgerSettings(Section):
    """How slots are counted."""

    draining_cap_s: Seconds = Field(
        default=10.0,
        description="How long a slot whose client left stays taken, in seconds, "
        "when no look at the server shows it free earlier.",
    )
    blind_draining_cap_s: Seconds = Field(
        default=1.0,
        description="The same, for a server that does not show its slots.",
    )


class ScraperSettings(Section):
    """How Coxswain looks at the servers."""

    path_prefix: PathPrefix = Field(
        default="",
        description="What the servers were started with as --api-prefix, such as `/llama`. "
        "Scrapes and Envoy's health checks ask below it; agents have it in --llama.",
    )
    fast_interval_s: SomeSeconds = Field(
        default=0.2,
        description="Seconds between two looks while a server has strangers on it or comes up.",
    )
    slow_interval_s: SomeSeconds = Field(
        default=2.0,
        description="Seconds between two looks while our own requests explain all that is busy.",
    )
    jitter: Share = Field(
        default=0.1,
        description="By which share each interval is varied, so that the looks spread out.",
    )
    connect_timeout_s: SomeSeconds = Field(
        default=1.0, description="Seconds to wait for a connection to a server."
    )
    read_timeout_s: SomeSeconds = Field(
        default=3.0, description="Seconds to wait for an answer to anything but /slots."
    )
    slots_read_timeout_s: SomeSeconds = Field(
        default=30.0,
        description="Seconds to wait for /slots, which a server answers between decode steps: "
        "a long prefill stalls it.",
    )
    write_timeout_s: SomeSeconds = Field(
        default=2.0, description="Seconds to wait until a question is sent."
    )
    pool_timeout_s: SomeSeconds = Field(
        default=2.0, description="Seconds to wait for a free connection of the pool."
    )
    patience_s: SomeSeconds = Field(
        default=1.0,
        description="After this many seconds without an answer a server's /slots counts as slow. "
        "Slow is not down; the question lives on.",
    )
    stale_after_s: SomeSeconds = Field(
        default=6.0,
        description="The age in seconds from which on an observation is old: "
        "its server is then used only when no other is free.",
    )
    failures_to_down: PositiveCount = Field(
        default=3, description="How many failed looks in a row make a server down."
    )

    @model_validator(mode="after")
    def _check_intervals(self) -> Self:
        if self.fast_interval_s > self.slow_interval_s:
            raise PydanticCustomError("order", "fast_interval_s must not exceed slow_interval_s")
        if self.stale_after_s <= self.slow_interval_s:
            raise PydanticCustomError(
                "order", "stale_after_s must exceed slow_interval_s, or all servers are stale"
            )
        return self
