"""SLO attainment of each objective: the share of requests that met it, over a rolling window."""

BUCKETS = 30
BUCKET_S = 10.0
"""Thirty buckets of ten seconds: five minutes."""


class Attainment:
    """The share of one objective's requests that met its SLO. O(1) a call, amortised."""

    __slots__ = ("_counted", "_counted_sum", "_head", "_met", "_met_sum", "met", "missed")

    def __init__(self) -> None:
        self.met = 0
        self.missed = 0
        """Counts since the start, independent of the window."""
        self._met = [0] * BUCKETS
        self._counted = [0] * BUCKETS
        self._met_sum = 0
        self._counted_sum = 0
        self._head = 0  # the number of the newest bucket since time 0

    def record(self, was_met: bool, now: float) -> None:
        """Record whether one more request met the SLO."""
        if was_met:
            self.met += 1
        else:
            self.missed += 1
        self._advance_to(now)
        index = self._head % BUCKETS
        self._counted[index] += 1
        self._counted_sum += 1
        self._met[index] += was_met
        self._met_sum += was_met

    def share(self, now: float) -> float:
        """The share of the last five minutes' requests that met the SLO; 1.0 without requests."""
        self._advance_to(now)
        return self._met_sum / self._counted_sum if self._counted_sum else 1.0

    def _advance_to(self, now: float) -> None:
        head = int(now // BUCKET_S)
        for number in range(max(self._head + 1, head - BUCKETS + 1), head + 1):
            index = number % BUCKETS
            self._met_sum -= self._met[index]
            self._counted_sum -= self._counted[index]
            self._met[index] = self._counted[index] = 0
        self._head = max(self._head, head)


class SloAttainment:
    """The attainment of every objective with an SLO; as many as the settings name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Attainment] = {}

    def record(self, objective: str, was_met: bool, now: float) -> None:
        """Record whether a request of that objective met its SLO."""
        self._by_name.setdefault(objective, Attainment()).record(was_met, now)

    def totals(self) -> dict[tuple[str, ...], float]:
        """How many requests of each objective met its SLO ("met") or not ("missed") since
        the start, by the objective's name and that word."""
        totals: dict[tuple[str, ...], float] = {}
        for name, attainment in self._by_name.items():
            totals[name, "met"] = attainment.met
            totals[name, "missed"] = attainment.missed
        return totals

    def share(self, objective: str | None, now: float) -> float:
        """The objective's attainment; 1.0 without an objective or without requests."""
        attainment = self._by_name.get(objective) if objective is not None else None
        return 1.0 if attainment is None else attainment.share(now)
