"""Whether this member leads, as a state machine without I/O.

    follower --a candidate, and the lock is granted--> leader --the lock is lost--> follower

A member stands for election when a core of its own is ready, no member says that it follows a
leader that decides, and it has been in touch with the engine for a whole lease: an engine that
comes back empty thus hears first from the leader, which keeps its epoch.

A leader may decide until its lease can have run out: `lease_s` after the beat was *sent*, less a
margin. Where the engine does not answer, it goes on while all fronts that it knows follow it
(`extproc/processes/fronts/lease_grant.py`); with `stays` it does so in any case.
"""

from dataclasses import dataclass, field
from typing import Final

from extproc.processes.cluster.engine import Beat, Leader, Member, View

MARGIN: Final = 0.15
"""Of the lease: a leader stops so much earlier than the engine could give it to another one."""
MEMORY_S: Final = 30.0
"""How long the fronts of a member that was heard of last may still come back."""


@dataclass(slots=True)
class Election:
    """Times are monotonic seconds of this machine."""

    lease_s: float
    stays: bool = False
    epoch: int = 0
    """The highest that is known."""
    is_leading: bool = False
    leader: Leader | None = None
    """The last that was elected, as far as is known; it may be this member."""
    members: tuple[Member, ...] = ()
    """Those that lived at the last contact."""
    permitted_until: float = 0.0
    """While it leads: until when it may decide without further conditions."""
    followed_until: float = 0.0
    """While it leads: until when it may decide if all fronts that it knows follow it. The engine
    was asked at most a lease before, and did not answer."""
    has_resigned: bool = False
    """It leads never again, whatever the engine says of a beat that was sent before."""
    in_touch_since: float | None = None
    last_contact: float | None = None
    _seen: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    """When each member was heard of, and its fronts."""

    @property
    def is_in_touch(self) -> bool:
        return self.in_touch_since is not None

    def beat(self, member: Member, now: float, *, can_lead: bool) -> Beat:
        """What to say to the engine."""
        if self.last_contact is not None and now - self.last_contact > self.lease_s / 2:
            self.in_touch_since = None  # it stood still
        is_known = self.in_touch_since is not None and now - self.in_touch_since >= self.lease_s
        is_led = member.follows or any(
            each.follows for each in self.members if each.id != member.id
        )
        goes_on = self.is_leading and now <= max(self.permitted_until, self.followed_until)
        return Beat(
            member=member,
            is_candidate=can_lead
            and not self.has_resigned
            and (goes_on or (is_known and not is_led)),
            is_leading=goes_on,
            has_lease=self.is_leading and now <= self.permitted_until,
            epoch=self.epoch,
        )

    def fronts_of_others(self, member_id: str, now: float) -> frozenset[str]:
        """The fronts of the other members that were heard of in the last `MEMORY_S`."""
        for key in [key for key, (at, _) in self._seen.items() if now - at > MEMORY_S]:
            del self._seen[key]
        return frozenset(
            front for key, (_, fronts) in self._seen.items() if key != member_id for front in fronts
        )

    def answered(self, beat: Beat, view: View, sent_at: float, now: float) -> None:
        """The engine answered a beat that was sent at `sent_at`."""
        if self.in_touch_since is None:
            self.in_touch_since = now
        self.last_contact = now
        self.members = view.members
        for member in view.members:
            self._seen[member.id] = (now, member.fronts)
        leader = view.leader
        if leader is None or leader.epoch < self.epoch:
            # The engine has forgotten, what is known stays: a leader claims its lock again.
            if self.is_leading and not beat.is_candidate:
                self.is_leading = False
            return
        self.epoch = leader.epoch
        self.leader = leader
        is_elected = leader.id == beat.member.id and view.is_held and beat.is_candidate
        self.is_leading = is_elected and not self.has_resigned
        if self.is_leading:
            self.permitted_until = sent_at + self.lease_s * (1 - MARGIN)

    def resign(self) -> None:
        """It ends, and another member is to lead."""
        self.has_resigned = True
        self.is_leading = False

    def failed(self, sent_at: float) -> None:
        """The engine did not answer."""
        self.in_touch_since = None
        if not self.is_leading:
            return
        if sent_at > max(self.permitted_until, self.followed_until):
            return  # it stood still, and another member may lead since
        self.followed_until = sent_at + self.lease_s * (1 - MARGIN)
        if self.stays:
            self.permitted_until = max(self.permitted_until, self.followed_until)
