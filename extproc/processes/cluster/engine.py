"""What an engine does for the members of a cluster: it says who leads, and keeps a few facts.

An engine holds one lock with a time to live, a counter of epochs, the records of the members that
live, and what operators asked for. It is never on a request's way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class EngineError(Exception):
    """The engine did not answer, or its answer makes no sense; `str(error)` names no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One machine. `id` is another one after each start. `address` is where other members reach its
    core, `fronts` are the names of its fronts. It `follows` if one of them hears a leader of
    another machine that decides."""

    id: str
    name: str
    address: str
    version: str = ""
    fronts: tuple[str, ...] = ()
    follows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a member says of itself. A candidate wants to lead, or to go on leading; `epoch` is the
    highest that it knows. One that is leading goes on, perhaps because its fronts follow it though
    its lease has run out. It `has_lease` if that has not: then nobody else can have led since."""

    member: Member
    is_candidate: bool
    is_leading: bool
    has_lease: bool
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads in `epoch`. `is_clean` says that the leader before it had stopped deciding when
    this one was elected."""

    id: str
    name: str
    address: str
    epoch: int
    is_clean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the engine answers. `leader` is the last that was elected, None for nobody; without
    `is_held` its lease has run out. `members` live, the asking one included."""

    leader: Leader | None
    is_held: bool
    members: tuple[Member, ...]


class Engine(Protocol):
    """Every method may raise `EngineError`, and is bounded in time."""

    eager_s: float
    """The pause between two beats while nobody leads."""

    async def beat(self, beat: Beat) -> View:
        """Say that a member lives, and hear who leads. In one step: a candidate gets the lock if it
        is free, in a new epoch, or in its own if it leads already and nobody was elected since. An
        engine that has forgotten learns the epoch from this, and waits for the leader for a lease
        before it elects."""

    async def intents(self) -> Mapping[str, str]:
        """What operators asked for: texts by the address of an endpoint."""

    async def set_intents(self, member_id: str, changes: Mapping[str, str | None]) -> None:
        """Keep these texts, and forget those that are None. Without effect unless the member
        leads."""

    async def resign(self, member_id: str) -> None:
        """The member leads no longer, and has stopped deciding."""

    async def leave(self, member_id: str) -> None:
        """The member ends, with its fronts."""

    async def aclose(self) -> None:
        """End all connections."""


def member_of(found: Mapping[str, Any]) -> Member:
    """Read what `dataclasses.asdict` made of a member, as engines keep it; fields that are not
    known are left out. Raises `KeyError` and `TypeError` for what is none."""
    return Member(
        id=str(found["id"]),
        name=str(found["name"]),
        address=str(found["address"]),
        version=str(found.get("version", "")),
        fronts=tuple(map(str, found.get("fronts", ()))),
        follows=bool(found.get("follows")),
    )


def apply_changes(entries: dict[str, str], changes: Mapping[str, str | None]) -> None:
    """Put these texts into `entries`, and remove those that are None."""
    for key, text in changes.items():
        if text is None:
            entries.pop(key, None)
        else:
            entries[key] = text
