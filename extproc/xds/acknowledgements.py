"""Tracks which endpoints every Envoy has acknowledged, so that a pick never names an unknown one.

    unknown --publish, no Envoy connected--> routable
    unknown --publish, some Envoy connected--> awaited (not routable)
    awaited --every connected Envoy acknowledged it--> routable
    awaited --`grace_s` after it was published--> routable
    awaited, routable --published without it--> unknown
    routable --published as one behind TLS now--> awaited, however long
    unknown --published while Envoys of another process are expected--> awaited, until these have
        had `grace_s` to subscribe; those that they know already are routable, unless one of them
        was sent a fleet without it meanwhile, and so forgot it

Otherwise an endpoint that is routable stays so until it leaves the fleet: an Envoy that connects
later fetches the fleet before it opens its listeners, and one that stalls costs a fallback, which
the answer's served feedback corrects. But an Envoy that does not know of the TLS yet would speak
to the server in the clear. Pure and synchronous; `now` is monotonic seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from extproc.core.address import Address

NEVER = -1
"""The acknowledged version of an Envoy that acknowledged none; real ones start at 0."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The endpoints that an event made routable, and those that it made wait."""

    routable: tuple[Address, ...] = ()
    awaited: tuple[Address, ...] = ()


NO_SHIFT = Shift()


@dataclass(frozen=True, slots=True)
class _Wait:
    version: int
    until: float


class Acknowledgements:
    """Fed with what was published and what each stream acknowledged; answers with a `Shift`.

    `publish` costs O(fleet), every other event O(streams + endpoints that wait).
    """

    def __init__(self, grace_s: float = 1.0) -> None:
        self._grace_s = grace_s
        self._version = NEVER
        self._addresses: frozenset[Address] = frozenset()
        self._waits: dict[Address, _Wait] = {}
        self._acknowledged: dict[int, int] = {}
        self._known: set[Address] | None = None
        """What the Envoys know that are expected; None if none are."""
        self._expected_until = inf

    def expect(self, known: Iterable[Address]) -> Shift:
        """Envoys will subscribe that follow another process now, which has sent them `known`.
        Called again, it adds to these. Ends `grace_s` after `may_subscribe`."""
        if self._known is None:
            self._known, self._expected_until = set(), inf
        self._known.update(known)
        return self._end_waits([address for address in self._waits if address in self._known])

    def may_subscribe(self, now: float) -> None:
        """The Envoys that are expected are heard from now on."""
        if self._known is not None:
            self._expected_until = now + self._grace_s

    def sent(self) -> None:
        """An Envoy was sent the present fleet: it knows no other endpoints any more."""
        if self._known is not None:
            self._known &= self._addresses

    def publish(
        self,
        version: int,
        addresses: Iterable[Address],
        now: float,
        secured: Iterable[Address] = (),
    ) -> Shift:
        """The fleet is now `addresses`; raises `ValueError` when `version` is not a later one.

        `secured` are those that were sent without TLS before, and are behind TLS now.
        """
        if version <= self._version:
            raise ValueError(f"version {version} published after version {self._version}")
        before, self._addresses = self._addresses, frozenset(addresses)
        self._version = version
        for gone in before - self._addresses:
            self._waits.pop(gone, None)
        added = tuple(sorted(self._addresses - before))
        known: tuple[Address, ...] = ()
        if self._known is not None:
            known = tuple(address for address in added if address in self._known)
            added = tuple(address for address in added if address not in self._known)
        elif not self._acknowledged:
            return Shift(routable=added)
        self._waits.update(dict.fromkeys(added, _Wait(version, now + self._grace_s)))
        again = tuple(sorted(before & self._addresses & frozenset(secured)))
        self._waits.update(dict.fromkeys(again, _Wait(version, inf)))
        return Shift(routable=known, awaited=added + again)

    def connect(self, stream: int) -> None:
        """An Envoy subscribed; what is awaited, it must acknowledge too."""
        if stream in self._acknowledged:
            raise ValueError(f"stream {stream} is connected already")
        self._acknowledged[stream] = NEVER

    def acknowledge(self, stream: int, version: int) -> Shift:
        """The Envoy of `stream` took over `version`, and so all before it."""
        self._acknowledged[stream] = max(self._acknowledged[stream], version)
        return self._settle(NEVER)

    def disconnect(self, stream: int) -> Shift:
        """The stream ended; nothing waits for it any more."""
        del self._acknowledged[stream]
        return self._settle(NEVER)

    def advance(self, now: float) -> Shift:
        """Do what is due at `now`: waits that lasted too long end."""
        if self._expected_until <= now:
            self._known, self._expected_until = None, inf
        return self._settle(now)

    def next_wakeup(self) -> float | None:
        """The time of the next `advance`, or None."""
        if self._known is not None:
            return self._expected_until if self._expected_until < inf else None
        return min((wait.until for wait in self._waits.values() if wait.until < inf), default=None)

    def is_routable(self, address: Address) -> bool:
        """Whether a pick of this endpoint reaches it through every Envoy, as far as known."""
        return address in self._addresses and address not in self._waits

    def acknowledged_by(self, stream: int) -> int:
        """The latest version that this stream took over, `NEVER` before its first."""
        return self._acknowledged[stream]

    def _settle(self, now: float) -> Shift:
        if self._known is not None:
            return NO_SHIFT  # who else will subscribe is not known
        known_by_all = min(self._acknowledged.values(), default=self._version)
        settled = [
            address
            for address, wait in self._waits.items()
            if wait.version <= known_by_all or wait.until <= now
        ]
        return self._end_waits(settled)

    def _end_waits(self, addresses: list[Address]) -> Shift:
        for address in addresses:
            del self._waits[address]
        return Shift(routable=tuple(addresses)) if addresses else NO_SHIFT
