"""The times in which nobody could know better, by what was done: what they excuse, and why.

Rules are those of `accounting`. A window is open from what was done until it was undone, and
`before_s` and `after_s` longer. What the rig makes a server answer needs none: the requests that
got it are known one by one.
"""

from dataclasses import dataclass

from rigs.chaos.records import Window
from rigs.chaos.script import OF_ENVOY, OF_PICKER, Kind

CUT = frozenset({"unexplained", "no-endpoint"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a kind of action excuses, at its server alone where it has one."""

    excuses: frozenset[str]
    why: str
    before_s: float = 0.0
    after_s: float = 2.0  # a scrape of the picker's and a health check of Envoy's came by


_SERVER = Allowance(
    excuses=CUT | {"spoiled"},
    why="its requests break, and it still gets some until Envoy and the picker notice",
)
_PICKER = Allowance(
    excuses=CUT | {"spoiled", "picker-lost", "shutting-down", "picker", "full", "closed"},
    why="Envoy fails open where it can; then the new picker must learn what is running, and cannot "
    "see what waits inside a server; the end of a killed picker's log may be lost",
    before_s=0.25,
    after_s=4.0,
)
_ENVOY = Allowance(
    excuses=CUT | {"log", "picker"},
    why="all requests break, new ones cannot connect, and the end of its log may be lost",
    before_s=1.0,
)

_CORE = Allowance(
    excuses=frozenset({"picker"}),
    why="the end of a killed core's log may be lost",
    before_s=0.25,
)
_FRONT = Allowance(
    excuses=CUT | {"picker-lost", "picker"},
    why="with full duplex, requests without an answer are refused; of others the core does not see "
    "how they end",
    before_s=0.25,
    after_s=4.0,
)

_MEMBER = Allowance(
    excuses=frozenset({"picker-lost", "picker", "unexplained"}),
    why="its fronts are lost with it: where Envoy fails closed (full duplex, ORIGINAL_DST, keys), "
    "their requests are refused or cut off; of others no core sees how they end",
    before_s=0.25,
)

ALLOWANCES = {
    **dict.fromkeys((Kind.KILL_CORE, Kind.FREEZE_CORE, Kind.RESTART_CORE), _CORE),
    **dict.fromkeys((Kind.KILL_FRONT, Kind.FREEZE_FRONT, Kind.RESTART_FRONT), _FRONT),
    **dict.fromkeys((Kind.KILL_LEADER, Kind.FREEZE_LEADER, Kind.RESTART_LEADER), _MEMBER),
    **dict.fromkeys((Kind.KILL_STANDBY, Kind.FREEZE_STANDBY, Kind.RESTART_STANDBY), _MEMBER),
    Kind.FREEZE_SUPERVISOR: _CORE,
    Kind.LOSE_BOTH: _MEMBER,
    **dict.fromkeys((Kind.KILL_SERVER, Kind.RESTART_SERVER), _SERVER),
    **dict.fromkeys(OF_PICKER, _PICKER),
    **dict.fromkeys(OF_ENVOY, _ENVOY),
}


def window(kind: Kind, began_at: float, ended_at: float, server: str = "") -> Window | None:
    """The window of what was done in that time, None for what excuses nothing."""
    allowed = ALLOWANCES.get(kind)
    if allowed is None:
        return None
    return Window(
        what=kind.value,
        began_at=began_at - allowed.before_s,
        ended_at=ended_at + allowed.after_s,
        excuses=allowed.excuses,
        server=server,
    )
