"""Counts the requests at once of sessions and of flows, for the limits of clients.

Sessions and flows are what clients say, without number, so a group is known only while it has
requests. Those count that run, drain, or are queued and may be assigned a slot. Where these are as
many as may, further ones are held back in the queue (see `queue/held_tickets.py`) until one of them
ends. Both counts can be derived again from the leases and the tickets.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from extproc.core.client_limits import EVERYBODY, ClientLimit, requests_text


class GroupKind(Enum):
    """What the requests of a group have in common."""

    SESSION = "session"
    FLOW = "flow"


TEXTS: Final = {GroupKind.SESSION: "session", GroupKind.FLOW: "fairness id"}
"""What clients and operators call them."""


class GroupKey(NamedTuple):
    """The requests of a tenant with one session id or one fairness id. `client` is the name whose
    limit it has, empty where keys are not checked."""

    kind: GroupKind
    client: str
    tenant: str
    name: str


class Group:
    """One session or flow that has a limit, and its requests now. Belongs to a `RequestGroups`."""

    __slots__ = ("_groups", "held_back", "key", "most", "requests")

    def __init__(self, key: GroupKey, most: int | None, groups: "RequestGroups") -> None:
        self.key = key
        self.most = most
        """Its limit, None if that was removed."""
        self.requests = 0
        """Leases, draining ones too, and queued requests that may be assigned a slot."""
        self.held_back = 0
        """Queued requests of it that are held back, by it or by another group of theirs."""
        self._groups = groups

    @property
    def is_full(self) -> bool:
        """Whether a further request is held back."""
        return self.most is not None and self.requests >= self.most

    @property
    def may_let_in(self) -> bool:
        """Whether it need not hold back a request, and is not about to let it in."""
        return not self.is_full and self not in self._groups.opened

    @property
    def limit_text(self) -> str:
        """The limit, for its client."""
        text, requests = TEXTS[self.key.kind], requests_text(self.most)
        return f"This {text} may have {requests} at once; wait for one to end."

    @property
    def description(self) -> str:
        """What a request that it holds back waits for, as a sentence without its end."""
        of, count = f"of this {TEXTS[self.key.kind]}", self.requests
        which = f"1 request {of} runs or is" if count == 1 else f"{count} requests {of} run or are"
        return f"held back: {which} next, as many as its limit allows"

    def request_began(self) -> None:
        """A request got a lease, or may be assigned one from now on."""
        self.requests += 1
        self._groups.known[self.key] = self

    def request_ended(self) -> None:
        """The lease of one is closed, or it left the queue."""
        self.requests -= 1
        self._changed()

    def hold_back(self) -> None:
        """A request of it is held back."""
        self.held_back += 1
        self._groups.known[self.key] = self
        self._changed()

    def end_hold(self) -> None:
        """That request is let in, or has left."""
        self.held_back -= 1
        self._changed()

    def _changed(self) -> None:
        if self.held_back:
            if not self.is_full:
                self._groups.opened.append(self)
        elif not self.requests:
            self._groups.known.pop(self.key, None)


Groups = tuple[Group, ...]
"""The groups with a limit that a request is in; most are in none."""


def full_group(groups: Groups) -> Group | None:
    """The first of these that holds back a further request, or None."""
    for group in groups:
        if group.is_full:
            return group
    return None


class RequestGroups:
    """All sessions and flows with a limit. Every call is O(1) but `renew` and those of the audit,
    which are O(groups)."""

    def __init__(self, limits: Mapping[str, ClientLimit]) -> None:
        self.opened: list[Group] = []
        """Those that may let in a request that they held back; the dispatcher empties it."""
        self.known: dict[GroupKey, Group] = {}
        """Those with requests, by their keys; changed by the groups alone."""
        self._limits: Mapping[str, ClientLimit] = {}
        self.is_empty = True
        """Whether no session and no flow has a limit."""
        self.renew(limits)

    def renew(self, limits: Mapping[str, ClientLimit]) -> None:
        """Other limits of clients, from now on. A request that began without a limit does not count
        until it ends; no request that may be assigned a slot is held back again."""
        self._limits = limits
        self.is_empty = not any(limit.has_groups for limit in limits.values())
        for group in self.known.values():
            group.most = self._most_of(group.key)
            if group.held_back and not group.is_full:
                self.opened.append(group)

    def of(self, client: str, tenant: str, session: str | None, fairness_id: str) -> Groups:
        """The groups of a request; an empty id is in none. Where keys are not checked, `client` is
        empty, and it has the limits of everybody; tenants are kept apart."""
        found: list[Group] = []
        for kind, name in ((GroupKind.SESSION, session), (GroupKind.FLOW, fairness_id)):
            if name:
                key = GroupKey(kind, client, tenant, name)
                most = self._most_of(key)
                if most is not None:
                    found.append(self.known.get(key) or Group(key, most, self))
        return tuple(found)

    def _most_of(self, key: GroupKey) -> int | None:
        limit = self._limits.get(key.client) or self._limits.get(EVERYBODY)
        if limit is None:
            return None
        return limit.per_session if key.kind is GroupKind.SESSION else limit.per_flow

    # Derived state

    def faults(self, counting: Iterable[Groups], held: Iterable[Groups]) -> list[str]:
        """Differences between the counts and these requests, for the log: the groups of each that
        counts, and of each that is held back. O(requests)."""
        requests = Counter(group for groups in counting for group in groups)
        held_back = Counter(group for groups in held for group in groups)
        return [
            f"{group.key}: {group.requests} requests count and {group.held_back} are held back, "
            f"and {requests[group]} and {held_back[group]} do"
            for group in {*self.known.values(), *requests, *held_back}
            if (group.requests, group.held_back) != (requests[group], held_back[group])
            or self.known.get(group.key) is not group
        ]

    def recount(self, leased: Iterable[Groups], queued: Iterable[Groups]) -> None:
        """Count these leases again, and none of the queued requests, which then enter again.
        O(requests)."""
        running = list(leased)
        for groups in (*running, *queued, tuple(self.known.values())):
            for group in groups:
                group.requests = group.held_back = 0
        self.known.clear()
        self.opened.clear()
        for groups in running:
            for group in groups:
                group.request_began()
