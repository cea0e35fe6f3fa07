"""HTTP for people and machines that watch: health, readiness, the state of things, metrics."""

from __future__ import annotations

from extproc.status.hosts import Hosts
from extproc.status.queue_position import Countdown, QueuePlace
from extproc.status.readiness import why_not_ready
from extproc.status.server import StatusServer
from extproc.status.sources import StatusSources
from extproc.status.status_json import picture

__all__ = [
    "Countdown",
    "Hosts",
    "QueuePlace",
    "StatusServer",
    "StatusSources",
    "picture",
    "why_not_ready",
]
