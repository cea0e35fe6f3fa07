"""Settings of the log and of StatsD."""

from typing import Literal

from pydantic import Field

from extproc.settings.section import Section
from extproc.settings.values import SomeSeconds, Target, split_host_port


class LogSettings(Section):
    """The log, which Coxswain writes to stderr."""

    format: Literal["human", "json"] = "human"
    """The log format: `human`, or `json` with one event per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""


class StatsdSettings(Section):
    """StatsD gauges slots_idle, slots_processing and requests_buffered, over UDP."""

    addr: Target | None = None
    """The address of StatsD, host:port. Without it, nothing is sent."""
    prefix: str = Field(default="coxswain", max_length=200, pattern=r"^[A-Za-z0-9_.-]*$")
    """The prefix of the names: `coxswain` gives coxswain.slots_idle."""
    interval_s: SomeSeconds = 10.0
    """The number of seconds between two reports."""

    @property
    def host(self) -> str:
        """The IP address or name of `addr`; empty without one."""
        return split_host_port(self.addr)[0] if self.addr is not None else ""

    @property
    def port(self) -> int:
        """The port of `addr`; 0 without one."""
        return split_host_port(self.addr)[1] if self.addr is not None else 0
