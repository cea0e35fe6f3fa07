"""HTTP for people and machines that watch: health, readiness, the state of things, metrics."""

from __future__ import annotations

from extproc.status.countdown import Countdown, QueuePlace
from extproc.status.hosts import Hosts
from extproc.status.picture import picture
from extproc.status.readiness import why_not_ready
from extproc.status.server import StatusServer
from extproc.status.sources import StatusSources

__all__ = [
    "Countdown",
    "Hosts",
    "QueuePlace",
    "StatusServer",
    "StatusSources",
    "picture",
    "why_not_ready",
]
