"""The processes of a picker with `fronts`, as operators see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class TakeoverReason(Enum):
    """Why another core had to take over."""

    ENDED = "ended"
    """It crashed, or somebody killed it."""
    HUNG = "hung"
    """It gave no sign of life and was killed by the supervisor."""
    LEFT = "left"
    """It was asked to end."""
    MEMBER = "member"
    """It ran on another machine of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the supervisor.

    `role` is core, spare, front, starting spare or starting front. `number` is a front's, small
    and used again after it ended; 0 for the others. `calls` are the streams that it holds.
    """

    name: str
    role: str
    pid: int
    age_s: float
    number: int = 0
    connections: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """What the core that leads found when it took over: running and queued requests, and the
    fronts that held them. `seconds` is the time since the core before it ended."""

    seconds: float
    running: int
    queued: int
    fronts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMember:
    """One machine of a cluster, as the engine knows it."""

    name: str
    address: str
    version: str
    fronts: int
    is_leading: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """A cluster, as `member` sees it: who leads, in which epoch, and who lives. `elections` counts
    how often this member was elected since it started; `engine_error` says why the engine does not
    answer."""

    member: str
    leader: str
    is_leading: bool
    epoch: int
    elections: int
    is_in_touch: bool
    engine_error: str
    members: tuple[ClusterMember, ...]

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ClusterReport:
        """Read what `as_json` wrote."""
        members = tuple(ClusterMember(**each) for each in found["members"])
        return cls(**{**found, "members": members})

    def as_json(self) -> dict[str, Any]:
        """From the supervisor to its cores."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """All of them. `fronts` is the wanted number; `takeovers` are by reason, and `restarts` are the
    processes that were started again, by role, all since the supervisor started."""

    fronts: int
    takeovers: Mapping[str, int]
    restarts: Mapping[str, int]
    members: tuple[Process, ...]
    last_takeover: Takeover | None = None
    cluster: ClusterReport | None = None

    @classmethod
    def reported(cls, report: Mapping[str, Any], last_takeover: Takeover | None) -> Processes:
        """Those that the supervisor reports. It may be older than this core, if the program was
        replaced while it ran: what it does not say is left out."""
        cluster = report.get("cluster")
        return cls(
            fronts=report.get("fronts", 0),
            takeovers=report.get("takeovers", {}),
            restarts=report.get("restarts", {}),
            members=tuple(Process(**each) for each in report.get("members", [])),
            last_takeover=last_takeover,
            cluster=ClusterReport.from_json(cluster) if cluster else None,
        )

    @property
    def total_takeovers(self) -> int:
        return sum(self.takeovers.values())
