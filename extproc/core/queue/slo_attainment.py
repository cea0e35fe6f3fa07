"""How well each objective's promise was kept: shares over a rolling window, by buckets."""

from __future__ import annotations

BUCKETS = 30
BUCKET_S = 10.0
"""Thirty buckets of ten seconds: five minutes."""


class Attainment:
    """The share of one objective's requests that met their promise. O(1) a call, amortised."""

    __slots__ = ("_asked", "_asked_sum", "_head", "_met", "_met_sum", "broken", "kept")

    def __init__(self) -> None:
        self.kept = 0
        self.broken = 0
        """Since the start, whatever the window."""
        self._met = [0] * BUCKETS
        self._asked = [0] * BUCKETS
        self._met_sum = 0
        self._asked_sum = 0
        self._head = 0  # the number of the newest bucket since time 0

    def judged(self, was_met: bool, now: float) -> None:
        """One more request whose fate is known."""
        if was_met:
            self.kept += 1
        else:
            self.broken += 1
        self._turn_to(now)
        index = self._head % BUCKETS
        self._asked[index] += 1
        self._asked_sum += 1
        self._met[index] += was_met
        self._met_sum += was_met

    def share(self, now: float) -> float:
        """Of the last five minutes' requests, how many met it; 1.0 when there were none."""
        self._turn_to(now)
        return self._met_sum / self._asked_sum if self._asked_sum else 1.0

    def _turn_to(self, now: float) -> None:
        head = int(now // BUCKET_S)
        for number in range(max(self._head + 1, head - BUCKETS + 1), head + 1):
            index = number % BUCKETS
            self._met_sum -= self._met[index]
            self._asked_sum -= self._asked[index]
            self._met[index] = self._asked[index] = 0
        self._head = max(self._head, head)


class SloAttainment:
    """The attainment of every objective that promises something; as many as the settings name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Attainment] = {}

    def record(self, objective: str, was_met: bool, now: float) -> None:
        """A request of that objective met its promise, or did not."""
        self._by_name.setdefault(objective, Attainment()).judged(was_met, now)

    def totals(self) -> dict[tuple[str, ...], float]:
        """How many promises of each objective were kept and broken since the start, by its
        name and that word."""
        totals: dict[tuple[str, ...], float] = {}
        for name, attainment in self._by_name.items():
            totals[name, "kept"] = attainment.kept
            totals[name, "broken"] = attainment.broken
        return totals

    def share(self, objective: str | None, now: float) -> float:
        """The objective's attainment; who was promised nothing has lost nothing: 1.0."""
        attainment = self._by_name.get(objective) if objective is not None else None
        return 1.0 if attainment is None else attainment.share(now)
