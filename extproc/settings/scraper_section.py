"""Settings of scraping and of the slots' ledger."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.settings.section import Section
from extproc.settings.values import PathPrefix, PositiveCount, Seconds, Share, SomeSeconds


class LedgerSettings(Section):
    """How leased slots are counted."""

    draining_cap_s: Seconds = Field(
        default=10.0,
        description="How many seconds the slot of a client that left stays leased, unless a "
        "scrape shows it free earlier.",
    )
    blind_draining_cap_s: Seconds = Field(
        default=1.0,
        description="The same, for a server that does not report its slots.",
    )


class ScraperSettings(Section):
    """How Coxswain scrapes the servers."""

    path_prefix: PathPrefix = Field(
        default="",
        description="The --api-prefix of the servers, such as `/llama`. Scrapes and Envoy's "
        "health checks use it; agents have it in --llama.",
    )
    fast_interval_s: SomeSeconds = Field(
        default=0.2,
        description="Seconds between two scrapes while a server has foreign slots or is starting.",
    )
    slow_interval_s: SomeSeconds = Field(
        default=2.0,
        description="Seconds between two scrapes while Coxswain's own requests account for all "
        "busy slots.",
    )
    jitter: Share = Field(
        default=0.1,
        description="The share by which each interval varies, so that the scrapes spread out.",
    )
    connect_timeout_s: SomeSeconds = Field(
        default=1.0, description="Seconds to wait for a connection to a server."
    )
    read_timeout_s: SomeSeconds = Field(
        default=3.0, description="Seconds to wait for a response to any path except /slots."
    )
    slots_read_timeout_s: SomeSeconds = Field(
        default=30.0,
        description="Seconds to wait for /slots, which a server answers between decode steps: a "
        "long prefill delays it.",
    )
    write_timeout_s: SomeSeconds = Field(
        default=2.0, description="Seconds to wait until a request is sent."
    )
    pool_timeout_s: SomeSeconds = Field(
        default=2.0, description="Seconds to wait for a free connection of the pool."
    )
    patience_s: SomeSeconds = Field(
        default=1.0,
        description="The number of seconds after which an unanswered /slots counts as slow. A "
        "slow server is not down, and the request continues.",
    )
    stale_after_s: SomeSeconds = Field(
        default=6.0,
        description="The age in seconds from which an observation is stale: its server is then "
        "used only if no other one is free.",
    )
    failures_to_down: PositiveCount = Field(
        default=3,
        description="The number of consecutive failed scrapes after which a server is down.",
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
