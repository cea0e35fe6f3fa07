"""What happens in a run, drawn from its seed: the same seed, the same script. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from signal import Signals

MODES = ("discovery", "gateway", "original-dst")
"""Of Envoy's configuration; in `gateway` bodies flow through the picker in full duplex."""


class Kind(Enum):
    """What is done to what. The value is what reports print."""

    KILL_SERVER = "kill a server"
    RESTART_SERVER = "restart a server (SIGTERM)"
    FREEZE_SERVER = "stop a server (SIGSTOP)"
    SLOW = "slow a server down"
    ERROR_500 = "respond with 500"
    ERROR_503 = "respond with 503"
    RESET = "reset connections"
    GARBAGE = "respond with garbage"
    HALF_JSON = "respond with half a JSON body"
    ENDLESS = "respond without end"
    HIDE_SERVER = "block scrapes of a server"
    DRAIN_SERVER = "drain a server"
    DISABLE_SERVER = "disable a server"
    REMOVE_SERVER = "remove a server"
    ADD_SERVER = "add a server"
    KILL_AGENT = "kill an agent"
    RESTART_AGENT = "restart an agent (SIGTERM)"
    FREEZE_AGENT = "stop an agent (SIGSTOP)"
    AGENT_CLOCK = "shift an agent's clock"
    KILL_PICKER = "kill the picker"
    FREEZE_PICKER = "stop the picker (SIGSTOP)"
    RESTART_PICKER = "restart the picker (SIGTERM)"
    PICKER_CLOCK = "shift the picker's clock"
    KILL_CORE = "kill the core"
    FREEZE_CORE = "stop the core (SIGSTOP)"
    RESTART_CORE = "restart the core (SIGTERM)"
    KILL_SPARE = "kill the spare core"
    FREEZE_SPARE = "stop the spare core (SIGSTOP)"
    KILL_FRONT = "kill a front"
    FREEZE_FRONT = "stop a front (SIGSTOP)"
    RESTART_FRONT = "restart a front (SIGTERM)"
    KILL_LEADER = "kill the leading member"
    FREEZE_LEADER = "stop the leading member (SIGSTOP)"
    RESTART_LEADER = "restart the leading member (SIGTERM)"
    FREEZE_SUPERVISOR = "stop the leading member's supervisor (SIGSTOP)"
    KILL_STANDBY = "kill a standby member"
    FREEZE_STANDBY = "stop a standby member (SIGSTOP)"
    RESTART_STANDBY = "restart a standby member (SIGTERM)"
    KILL_ENGINE = "kill the engine"
    FREEZE_ENGINE = "stop the engine (SIGSTOP)"
    RESTART_ENGINE = "restart the engine (SIGTERM)"
    LOSE_BOTH = "kill the engine, then the leading member"
    KILL_ENVOY = "kill Envoy"
    RESTART_ENVOY = "restart Envoy (SIGTERM)"

    @property
    def signal(self) -> Signals:
        """By which a process is lost; the first word of the name says it."""
        return SIGNALS[self.name.partition("_")[0]]


SIGNALS = {"KILL": Signals.SIGKILL, "FREEZE": Signals.SIGSTOP, "RESTART": Signals.SIGTERM}

OF_SERVERS = tuple(Kind)[: tuple(Kind).index(Kind.KILL_AGENT)]
OF_AGENTS = (Kind.KILL_AGENT, Kind.RESTART_AGENT, Kind.FREEZE_AGENT)
CLOCKS = (Kind.AGENT_CLOCK, Kind.PICKER_CLOCK)
OF_PICKER = (Kind.KILL_PICKER, Kind.FREEZE_PICKER, Kind.RESTART_PICKER)
OF_PROCESSES = tuple(Kind)[tuple(Kind).index(Kind.KILL_CORE) : tuple(Kind).index(Kind.KILL_LEADER)]
"""With fronts; then the picker is their supervisor."""
OF_MEMBERS = tuple(Kind)[tuple(Kind).index(Kind.KILL_LEADER) : tuple(Kind).index(Kind.KILL_ENVOY)]
"""In a cluster, in place of `OF_PICKER`."""
FORMS = ("fronts", "one process", "cluster")
"""What the picker is: a supervisor with its processes, a process, or two members of a cluster."""
OF_ENVOY = (Kind.KILL_ENVOY, Kind.RESTART_ENVOY)
GLOBAL = frozenset({*OF_PICKER, *OF_PROCESSES, *OF_MEMBERS, *OF_ENVOY})
"""After which everybody has to find together again: nothing else happens meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A server of the fleet at the start."""

    kind: str
    slots: int
    has_agent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`target` chooses among the servers (or agents) that can be had then."""

    at_s: float
    kind: Kind
    target: float  # 0 to 1
    lasts_s: float
    seconds: float = 0.0  # by which a clock is moved

    def __str__(self) -> str:
        moved = f" by {self.seconds:+.0f} s" if self.seconds else ""
        return f"{self.at_s:6.1f} s  {self.kind.value}{moved}, for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A run: how everything is set up, and what happens when."""

    seed: int
    mode: str
    is_secure: bool
    fronts: int
    is_cluster: bool
    fleet: tuple[Stand, ...]
    actions: tuple[Action, ...]
    seconds: float

    def __str__(self) -> str:
        text = "TLS and keys" if self.is_secure else "in the clear"
        fleet = ", ".join(
            f"{one.kind} of {one.slots}{' with an agent' * one.has_agent}" for one in self.fleet
        )
        processes = f", {self.fronts} fronts" if self.fronts else ""
        if self.is_cluster:
            processes = f", two members with {self.fronts} fronts each"
        head = f"seed {self.seed}: {self.mode}, {text}{processes}, {self.seconds:g} s; {fleet}"
        return "\n".join([head, *map(str, self.actions)])


def draw_script(
    seed: int,
    seconds: float,
    *,
    mode: str | None = None,
    has_llama: bool = True,
    form: str | None = None,
    has_engine: bool = True,
) -> Script:
    """The script of a seed. Twenty seeds in a row run each mode with and without TLS and keys, as
    one process, with fronts and as a cluster, and do each kind of thing several times. Without an
    engine there are fronts in place of a cluster."""
    source = Random(seed)
    form = form or FORMS[seed // (2 * len(MODES)) % len(FORMS)]
    if form == "cluster" and not has_engine:
        form = "fronts"
    real = "llama" if has_llama else "simulator"
    fleet = (
        *(Stand(kind=real, slots=2) for _ in range(source.choice((1, 2)))),
        *(Stand(kind="simulator", slots=source.choice((2, 3, 4))) for _ in range(3)),
        Stand(kind="simulator", slots=2, has_agent=True),
        Stand(kind=real, slots=2, has_agent=True),
    )
    return Script(
        seed=seed,
        mode=mode or MODES[seed % len(MODES)],
        is_secure=seed // len(MODES) % 2 == 0,
        fronts=0 if form == "one process" else 2,
        is_cluster=form == "cluster",
        fleet=fleet,
        actions=tuple(_actions(source, seconds, form, seed)),
        seconds=seconds,
    )


def _actions(source: Random, seconds: float, form: str, seed: int) -> list[Action]:
    share = seconds / 60
    kinds = [
        *_some(source, OF_SERVERS, max(1, round(12 * share))),
        *_some(source, OF_AGENTS, max(1, round(1.5 * share))),
        *_some(source, CLOCKS, max(1, round(share))),
        *_some(source, OF_ENVOY, max(1, round(share))),
    ]
    if form == "cluster":
        kinds += _in_turn(seed, OF_MEMBERS, max(2, round(6 * share)))
        kinds += _in_turn(seed, OF_PROCESSES, max(1, round(2 * share)))
    else:
        kinds += _in_turn(seed, OF_PICKER, max(1, round(share)))
    if form == "fronts":
        kinds += _in_turn(seed, OF_PROCESSES, max(2, round(4 * share)))
    source.shuffle(kinds)
    # A start without trouble, and no trouble begins so late that its end is not seen.
    times = _times(source, kinds, 2.0, seconds - 6.0)
    return [
        Action(
            at_s=at_s,
            kind=kind,
            target=source.random(),
            lasts_s=_lasts_s(source, kind, next_s - at_s),
            seconds=source.choice((-3600.0, -5.0, 5.0, 86_400.0)) if kind in CLOCKS else 0.0,
        )
        for at_s, next_s, kind in zip(times, [*times[1:], seconds], kinds, strict=True)
    ]


def _some(source: Random, kinds: Sequence[Kind], count: int) -> list[Kind]:
    """`count` of them, none twice before each came once."""
    drawn: list[Kind] = []
    while len(drawn) < count:
        drawn += source.sample(kinds, min(len(kinds), count - len(drawn)))
    return drawn


def _in_turn(seed: int, kinds: Sequence[Kind], count: int) -> list[Kind]:
    """`count` of them: those of a seed go on where those of the seed before ended."""
    return [kinds[(seed * count + number) % len(kinds)] for number in range(count)]


def _times(source: Random, kinds: list[Kind], first_s: float, last_s: float) -> list[float]:
    """In order, with three times as much room after what everybody has to recover from."""
    room = [(3.0 if kind in GLOBAL else 1.0) * source.uniform(0.6, 1.4) for kind in kinds]
    unit_s = (last_s - first_s) / sum(room)
    times, at_s = [], first_s
    for one in room:
        times.append(round(at_s, 1))
        at_s += one * unit_s
    return times


def _lasts_s(source: Random, kind: Kind, room_s: float) -> float:
    """`room_s` is the time until the next action."""
    if kind in GLOBAL:
        longest_s = 5.0 if kind in OF_MEMBERS else 2.0
        return round(min(source.uniform(0.2, longest_s), 0.8 * room_s), 1)
    if kind in OF_AGENTS:
        return round(source.uniform(2.0, 6.0), 1)
    return round(source.uniform(1.0, 6.0), 1)
