"""The machines with a keeper, and the models that each can load."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from extproc.core.address import Address
from extproc.core.constraints import NO_POOL

CONTEXT_STEP: Final = 256
"""llama-server rounds contexts up to a multiple of this."""


class Power(Enum):
    """The state of a machine that may sleep."""

    AWAKE = "awake"
    GOING_OFF = "going-off"
    OFF = "off"
    WAKING = "waking"


class KeptState(Enum):
    """The state of a model on one machine, as its keeper reports it."""

    UNLOADED = "unloaded"
    WAITING = "waiting"  # wanted, until others have left enough memory
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"  # no new requests; the running ones finish
    RESTARTING = "restarting"  # its server ended by itself
    FAILED = "failed"  # it ended too often, and is left alone

    @property
    def holds_memory(self) -> bool:
        """Whether it takes memory on its machine."""
        return self not in (KeptState.UNLOADED, KeptState.WAITING, KeptState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModel:
    """A model in a keeper's file. `ttl_s` is 0 if it stays loaded without requests, and
    `context_tokens` if the file does not say it. `exclusive_with` holds in both directions."""

    name: str
    address: Address
    memory_mb: int
    aliases: tuple[str, ...] = ()
    slots: int = 1
    context_tokens: int = 0
    ttl_s: float = 0.0
    exclusive_with: frozenset[str] = frozenset()
    is_preloaded: bool = False

    @property
    def slot_tokens(self) -> int:
        """What a slot of it will hold, as llama-server rounds it; 0 if that is not known."""
        return -(-self.context_tokens // CONTEXT_STEP) * CONTEXT_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptStatus:
    """The state of a model and the moment of its last change, in monotonic seconds. `load_s` is
    what its last load took, None before the first one."""

    state: KeptState = KeptState.UNLOADED
    since: float = 0.0
    load_s: float | None = None
    exits: int = 0
    problem: str = ""
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class KeptMachine:
    """One machine. `statuses` has every model; a machine that is not connected keeps its last.

    A server in router mode is one, too: its limit is a number of models (`max_models`, 0 for no
    limit), and their memory is not known.
    """

    name: str
    memory_mb: int
    models: Mapping[str, KeptModel]
    version: str = ""
    pool: str = NO_POOL
    """The pool for whose requests it loads models; empty for the one that the settings say."""
    is_router: bool = False
    max_models: int = 0
    is_connected: bool = True
    has_reported: bool = False
    """Whether its keeper has reported the states of its models since it attached."""
    pinned: frozenset[str] = frozenset()
    """The models that its keeper remembers as pinned, from when it attached."""
    statuses: dict[str, KeptStatus] = field(default_factory=dict)
    power: Power = Power.AWAKE
    """Of a machine that may sleep (`machines` in the settings); others are always awake."""

    def __post_init__(self) -> None:
        for name in self.models:
            self.statuses.setdefault(name, KeptStatus())

    @property
    def stays(self) -> bool:
        """Whether its keeper is connected, and it is not being put to sleep."""
        return self.is_connected and self.power is not Power.GOING_OFF

    @property
    def takes_loads(self) -> bool:
        """Whether models can be loaded there now."""
        return self.stays and self.has_reported

    @property
    def names(self) -> frozenset[str]:
        """All names of its models."""
        aliases = (alias for model in self.models.values() for alias in model.aliases)
        return frozenset((*self.models, *aliases))

    @property
    def used_models(self) -> int:
        """How many of its models hold memory."""
        return sum(status.state.holds_memory for status in self.statuses.values())

    @property
    def used_mb(self) -> int:
        """The memory of the models that hold some."""
        return sum(
            model.memory_mb
            for name, model in self.models.items()
            if self.statuses[name].state.holds_memory
        )
