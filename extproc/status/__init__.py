"""The status pages over HTTP: health, readiness, status, metrics."""

from extproc.status.countdown import Countdown, QueuePosition
from extproc.status.hosts import Hosts
from extproc.status.readiness import Readiness, why_not_ready
from extproc.status.server import StatusServer, StatusSources
