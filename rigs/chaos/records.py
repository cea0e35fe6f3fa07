"""What was seen of each request, from each side. Times are monotonic seconds of this machine."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RECORDS = "records.jsonl"


@dataclass(slots=True, kw_only=True)
class Call:
    """One request as its client saw it; `ended_at` is 0 while it runs.

    `patience_s` is the longest time in the queue that it allowed; `status` is 0 when no response
    headers came; `is_whole` says that the response ended properly; `has_left` that the client
    closed the connection on purpose; `error` is what the connection reported.
    """

    id: str
    kind: str
    sent_at: float
    ended_at: float = 0.0
    weight: int = 1
    patience_s: float = 60.0
    status: int = 0
    reason: str = ""
    endpoint: str = ""
    queue_ms: int = 0
    body_bytes: int = 0
    is_whole: bool = False
    is_sound: bool = True  # a whole 200 response that is what was requested
    has_left: bool = False
    error: str = ""

    @property
    def is_served(self) -> bool:
        """Whether it was answered as it should be."""
        return self.status == 200 and self.is_whole and self.is_sound

    @property
    def is_refused(self) -> bool:
        """Whether it got a whole answer of the picker's or of Envoy's that says why not."""
        return self.status >= 400 and self.is_whole and bool(self.reason)


@dataclass(slots=True, kw_only=True)
class Arrival:
    """One request as it reached a server; `fault` is what the rig did to it there."""

    id: str
    server: str
    at: float
    status: int = 0
    first_byte_at: float = 0.0  # of the response, as the server wrote it
    last_byte_at: float = 0.0
    closed_at: float = 0.0
    is_whole: bool = False
    fault: str = ""

    @property
    def ended_at(self) -> float:
        """When its slot was free again: the response was written, or its client was gone."""
        return self.last_byte_at if self.is_whole else self.closed_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of Envoy's access log."""

    id: str
    status: int
    endpoint: str
    attempts: int
    bytes_out: int
    flags: str
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One request as the picker logged its end."""

    id: str
    outcome: str
    endpoint: str
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time in which nobody could know better, and what it excuses (names of rules).

    `server` is an address, or empty for all of them.
    """

    what: str
    began_at: float
    ended_at: float
    excuses: frozenset[str]
    server: str = ""

    def covers(self, rule: str, began_at: float, ended_at: float, server: str = "") -> bool:
        """Whether it excuses this rule at any moment of that time at that server."""
        return (
            rule in self.excuses
            and began_at <= self.ended_at
            and self.began_at <= ended_at
            and self.server in ("", server)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A time in which the picker knew that a server must get no request."""

    server: str
    why: str  # "drained", "disabled", "removed" or "down"
    began_at: float
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that should be gone at the end, or a number that should be 0."""

    what: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """All that a run recorded."""

    calls: list[Call]
    arrivals: list[Arrival]
    lines: list[Line]
    ended: list[Ended]
    slots: dict[str, int]
    windows: list[Window] = field(default_factory=list)
    closed: list[Closed] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)


def keep(records: Records, folder: Path) -> None:
    """Write down all that was recorded, to analyse a finding."""
    with (folder / RECORDS).open("w") as file:
        for name in ("calls", "arrivals", "lines", "ended", "windows", "closed", "leftovers"):
            for record in getattr(records, name):
                entry = {"record": name, **asdict(record)}
                file.write(json.dumps(entry, default=sorted) + "\n")
