"""Settings of the log, of StatsD, of ended requests, and of the count of usage."""

from typing import Literal

from pydantic import Field

from extproc.settings.section import Section
from extproc.settings.values import File, Reloadable, SomeSeconds, Target, Whole, split_host_port


class LogSettings(Section):
    """The log, which Coxswain writes to stderr."""

    format: Literal["human", "json"] = "human"
    """The log format: `human`, or `json` with one event per line."""
    level: Reloadable[Literal["debug", "info", "warning", "error"]] = "info"
    """The lowest level that is logged."""


class StatsdSettings(Section):
    """StatsD gauges slots_idle, slots_processing and requests_buffered, over UDP."""

    addr: Target | None = None
    """The address of StatsD, host:port; off without it."""
    prefix: str = Field(default="coxswain", max_length=200, pattern=r"^[A-Za-z0-9_.-]*$")
    """The prefix of the names: `coxswain` gives coxswain.slots_idle."""
    interval_s: SomeSeconds = 10.0
    """Seconds between two reports."""

    @property
    def host(self) -> str:
        """The IP address or name of `addr`; empty without one."""
        return split_host_port(self.addr)[0] if self.addr is not None else ""

    @property
    def port(self) -> int:
        """The port of `addr`; 0 without one."""
        return split_host_port(self.addr)[1] if self.addr is not None else 0


class RecordsSettings(Section):
    """Ended requests for `coxswain requests`: no bodies, prompts or keys (docs/operations.md)."""

    size: Whole = Field(default=10_000, ge=1, le=1_000_000)
    """The number of ended requests in memory, of about 2 KB each."""
    path: File | None = None
    """The file to which they are written, too, as lines of JSON; created if it is missing."""
    max_mb: Whole = Field(default=100, ge=10, le=100_000)
    """The highest size in MB of the file and the one before it, FILE.1, together."""


class UsageSettings(Section):
    """Counts requests, tokens and slot-seconds by client, objective and model (docs/usage.md). Off
    without `path`."""

    path: File | None = None
    """The SQLite file that keeps the counts over restarts; created if it is missing. Print Envoy's
    configuration again when this changes."""
    keep_days: Whole = Field(default=400, ge=1, le=36_500)
    """Days after which counts are removed."""
    read_counters: bool = False
    """Whether to read the token counters of llama-servers that run with `--metrics`, so that the
    sums are exact even if clients leave (docs/usage.md)."""
