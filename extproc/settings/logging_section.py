"""What Coxswain tells the world about itself: its log, and gauges for StatsD."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from extproc.settings.section import Section
from extproc.settings.values import SomeSeconds, Target, split_host_port


class LogSettings(Section):
    """What Coxswain writes to stderr."""

    format: Literal["human", "json"] = Field(
        default="human", description="`human` for eyes, `json` for machines, one event a line."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least serious kind of event that is written."
    )


class StatsdSettings(Section):
    """StatsD gauges slots_idle, slots_processing and requests_buffered, over UDP."""

    addr: Target | None = Field(
        default=None, description="Where StatsD listens, host:port. Without it nothing is sent."
    )
    prefix: str = Field(
        default="coxswain",
        max_length=200,
        pattern=r"^[A-Za-z0-9_.-]*$",
        description="What stands before the names: coxswain makes coxswain.slots_idle.",
    )
    interval_s: SomeSeconds = Field(default=10.0, description="Seconds between two reports.")

    @property
    def host(self) -> str:
        """The IP address or name of `addr`; empty without one."""
        return split_host_port(self.addr)[0] if self.addr is not None else ""

    @property
    def port(self) -> int:
        """The port of `addr`; 0 without one."""
        return split_host_port(self.addr)[1] if self.addr is not None else 0
