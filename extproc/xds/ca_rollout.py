"""Whom one Envoy is asked to trust, where it refuses some: the others must not wait for those.

Envoy takes a cluster whole or not at all, and reads certificates more strictly than others do. So
what it refuses is searched for, and left out:

    offered             what this Envoy holds, and all that is new
    refused, one new    that one is set aside; what was accepted for it before counts, if anything
    refused, several    half of them are offered next: of N, one is found in log2(N) rejections
    accepted            held from now on, and the rest is offered

What is set aside is tried again when its content is another one, and by another stream.
"""

from collections.abc import Mapping

from extproc.security.trust import Trust


class CaRollout:
    """Of one Envoy's stream. Pure; `draw`, then `accept` or `refuse`, each O(profiles)."""

    def __init__(self) -> None:
        self.refused: frozenset[str] = frozenset()
        """Profiles whose current CA this Envoy rejects."""
        self.held: dict[str, Trust] = {}
        """What it accepted last."""
        self._set_aside: set[Trust] = set()
        self._open: dict[str, Trust] = {}
        self._rest = 0
        self._limit: int | None = None

    def draw(self, wanted: Mapping[str, Trust], proven: Mapping[str, Trust]) -> tuple[Trust, ...]:
        """What to send now, in the order of their names.

        `proven` is what an Envoy took for a profile before: it stands in for what this one
        refuses, so that a connection that was lost meanwhile costs nothing.
        """
        self._set_aside &= {*wanted.values(), *proven.values()}
        held = {name: self.held[name] for name in wanted if name in self.held}
        fresh = [
            trust
            for name in sorted(wanted)
            for trust in self._choice(name, wanted[name], proven.get(name))
            if held.get(name) != trust
        ]
        drawn = fresh[: self._limit]
        self._rest = len(fresh) - len(drawn)
        self._open = {**held, **{trust.profile: trust for trust in drawn}}
        self.refused = frozenset(name for name in wanted if wanted[name] in self._set_aside)
        return tuple(self._open[name] for name in sorted(self._open))

    def accept(self) -> bool:
        """Envoy holds what was drawn last; returns whether there is more to draw."""
        self.held = self._open
        if not self._rest:
            self._limit = None
        return bool(self._rest)

    def refuse(self) -> Trust | bool:
        """Envoy keeps what it held. Returns what is set aside by that; True where another draw
        comes nearer to it, False where nothing new was in it and all there is to do is wait."""
        fresh = [trust for name, trust in self._open.items() if self.held.get(name) != trust]
        if len(fresh) == 1:
            self._limit = None
            self._set_aside.add(fresh[0])
            return fresh[0]
        if not fresh:  # so it was for something else that the others were refused
            self._set_aside.clear()
            self.refused = frozenset()
            self._limit = None
            return False
        self._limit = len(fresh) // 2
        return True

    def _choice(self, name: str, wanted: Trust, proven: Trust | None) -> tuple[Trust, ...]:
        """None or one that may be offered for this profile."""
        if wanted not in self._set_aside:
            return (wanted,)
        if name in self.held or proven is None or proven in self._set_aside:
            return ()
        return (proven,)
