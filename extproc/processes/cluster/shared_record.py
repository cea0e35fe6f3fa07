"""What the members share where the engine has no scripts: one record, which a member replaces as a
whole if it has read the last version. Pure: what a beat makes of it, and what has run out.

    read -> beaten (or resigned, left) -> replace if nobody else has -> read again otherwise

It is the script of `valkey.py` in other words; tests hold both to the same claims. Clocks of
members are not compared: a member takes a holder or another member for gone if their numbers have
not changed for a lease of its own clock (`Observer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from extproc.processes.cluster.engine import Beat, Leader, Member, View

FREE: Final = ""
NOBODY: Final = "-"
"""Holds the lock for a lease in an engine that has forgotten: its leader claims it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRecord:
    """`holder` is the id of the member that holds the lock, `FREE` or `NOBODY`. `renewals` changes
    with each beat of the holder, and `members` has such a number for each member."""

    epoch: int = 0
    holder: str = FREE
    renewals: int = 0
    leader: Member | None = None
    is_clean: bool = False
    has_resigned: bool = False
    members: Mapping[str, tuple[int, Member]] = field(default_factory=dict)

    def beaten(self, beat: Beat, *, is_held: bool, gone: frozenset[str]) -> SharedRecord:
        """The record after a beat. Without `is_held` the lock has run out; `gone` are the members
        that have."""
        me, known, epoch = beat.member, beat.epoch, self.epoch
        number = self.members.get(me.id, (0, me))[0] + 1
        members = {key: one for key, one in self.members.items() if key not in gone}
        record = replace(self, members={**members, me.id: (number, me)})
        holder = self.holder if is_held else FREE
        was_its_own = self.leader is not None and self.leader.id == me.id
        may_be_next = known == epoch or (known < epoch and not beat.is_leading)
        is_forgotten = known > epoch or (known == epoch and self.leader is None)
        is_its_own = (beat.is_leading and known == epoch and was_its_own) or (
            beat.has_lease and is_forgotten
        )
        if beat.is_candidate and holder == me.id and known <= epoch:
            return replace(record, renewals=self.renewals + 1)
        if beat.is_candidate and (is_its_own or (holder == FREE and may_be_next)):
            return replace(
                record,
                epoch=known if is_its_own else epoch + 1,
                holder=me.id,
                renewals=self.renewals + 1,
                leader=me,
                is_clean=self.is_clean if is_its_own else self.has_resigned,
                has_resigned=False,
            )
        if holder == me.id and not beat.is_candidate:
            return replace(record, holder=FREE)
        if known > epoch:
            return replace(
                record,
                epoch=known,
                holder=NOBODY,
                renewals=self.renewals + 1,
                leader=None,
                is_clean=False,
                has_resigned=False,
            )
        return record

    def resigned(self, member_id: str) -> SharedRecord:
        """The record after the holder has resigned; the same if it is another one."""
        if self.holder != member_id:
            return self
        return replace(self, holder=FREE, has_resigned=True)

    def left(self, member_id: str) -> SharedRecord:
        """The record after a member has left."""
        members = {key: one for key, one in self.members.items() if key != member_id}
        return self if len(members) == len(self.members) else replace(self, members=members)

    def view(self, *, is_held: bool, gone: frozenset[str]) -> View:
        """What a member hears."""
        leader = None
        if self.leader is not None:
            leader = Leader(
                id=self.leader.id,
                name=self.leader.name,
                address=self.leader.address,
                epoch=self.epoch,
                is_clean=self.is_clean,
            )
        alive = [member for key, (_, member) in self.members.items() if key not in gone]
        members = tuple(sorted(alive, key=lambda each: each.name))
        return View(leader=leader, is_held=is_held and self.holder != FREE, members=members)


@dataclass(slots=True)
class Observer:
    """What one member has seen of the record, and when, by its own monotonic clock. A lock or a
    member counts from when it was first seen as it is, which is later than it was written."""

    lease_s: float
    _holder: tuple[str, int, int] | None = None
    _holder_since: float = 0.0
    _members: dict[str, tuple[int, float]] = field(default_factory=dict)

    def see(self, record: SharedRecord, now: float) -> None:
        """The record as it is now."""
        holder = (record.holder, record.epoch, record.renewals)
        if holder != self._holder:
            self._holder, self._holder_since = holder, now
        seen: dict[str, tuple[int, float]] = {}
        for key, (number, _) in record.members.items():
            before = self._members.get(key)
            seen[key] = before if before is not None and before[0] == number else (number, now)
        self._members = seen

    def is_held(self, now: float) -> bool:
        """Whether the lock that was seen last has not run out."""
        return now - self._holder_since < self.lease_s

    def gone(self, now: float) -> frozenset[str]:
        """The members that have said nothing for a lease."""
        return frozenset(
            key for key, (_, since) in self._members.items() if now - since >= self.lease_s
        )
