"""What requests ask of models: how many arrive, and for how long they hold their slots."""

from collections import OrderedDict
from math import exp, inf
from typing import Final

from extproc.core.prediction.statistics import DecayingMean
from extproc.core.recent import remember

MEMORY_S: Final = 60.0
"""The time constant of the rate of arrivals."""
MAX_NAMES: Final = 1024
"""Names come from clients: the least recently used are forgotten."""
Source = tuple[str, str]
"""The model's name as requests give it, empty for none, and the objective's."""


class ArrivalRate:
    """Arrivals per second, exponentially smoothed over time. O(1) a call."""

    __slots__ = ("_count", "_per_s", "_since", "last_at")

    def __init__(self, now: float) -> None:
        self._per_s = 0.0
        self._count = 0
        self._since = now
        self.last_at = -inf

    def arrived(self, now: float) -> None:
        """A request arrived."""
        self._count += 1
        self.last_at = now

    def per_s(self, now: float) -> float:
        """The rate now. Arrivals since the last call count as spread over the time since."""
        passed_s = now - self._since
        if passed_s <= 0.0:
            return self._per_s
        left = exp(-passed_s / MEMORY_S)
        self._per_s = self._per_s * left + self._count / passed_s * (1.0 - left)
        self._count, self._since = 0, now
        return self._per_s


class Traffic:
    """Every call is O(1)."""

    def __init__(self) -> None:
        self.arrivals: OrderedDict[Source, ArrivalRate] = OrderedDict()
        self.service: OrderedDict[str, DecayingMean] = OrderedDict()
        """Slot-seconds of a request, by the server's own name of the model."""
        self.used_at: dict[str, float] = {}
        """When the last request for a model ended; by the keys of `service`."""

    def arrived(self, model: str, objective: str, now: float) -> None:
        """A request arrived, whatever becomes of it."""
        source = model, objective
        remember(self.arrivals, source, lambda: ArrivalRate(now), MAX_NAMES).arrived(now)

    def request_ended(self, model: str, slot_s: float, now: float, *, is_sample: bool) -> None:
        """A request gave its slots back after that many slot-seconds; `is_sample` unless they say
        nothing about the next one."""
        service = self.service.get(model)
        if service is None:
            service = self.service[model] = DecayingMean(clip=8.0)
            if len(self.service) > MAX_NAMES:
                forgotten, _ = self.service.popitem(last=False)
                self.used_at.pop(forgotten, None)
        self.used_at[model] = now
        if is_sample:
            service.add(slot_s)

    def service_s(self, model: str) -> float | None:
        """The mean slot-seconds of a request; None before any ended."""
        service = self.service.get(model)
        return service.value(0.0) if service is not None and service.weight else None
