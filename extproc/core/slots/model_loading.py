"""Models that routers are loading.

The whole fleet loads a model at most once at a time: a burst for a cold model must not make every
router unload its models. A load is pending

    from the pick that starts it, or the first scrape that shows it (another client requested it)
    until a later scrape shows that the model is loaded, or that it is not being loaded any more
        after the request that started it ended and can no longer arrive; or its server is lost;
        or `LOAD_TIMEOUT_S` passed

Some servers say that a model is loaded while they load it. There a load goes on until the request
that started it is answered or ends, or for as long as loads of the model usually take.
"""

from collections import OrderedDict
from collections.abc import Mapping
from math import inf

from extproc.core.address import Address
from extproc.core.observation import ModelReading
from extproc.core.prediction.statistics import DecayingMean
from extproc.core.slots.draining_evidence import ARRIVAL_S, arrived_by
from extproc.core.slots.lease import Lease

LOAD_TIMEOUT_S = 300.0
"""A load that takes longer does not prevent another one."""
MAX_MODELS = 256
"""The models of which it is known how long their loads take; the one learned first is dropped."""
DECAY = 0.8
"""About the last five loads of a model count."""

PlainLoads = tuple[tuple[str, tuple[float, float]], ...]
"""How long loads take, by model: what a `DecayingMean` knows."""


class ModelLoad:
    """One pending load. `lease` is that of the request that started it, None for a foreign one."""

    __slots__ = ("address", "idle_since", "lease", "since", "until")

    def __init__(self, address: Address, now: float, lease: Lease | None) -> None:
        self.address = address
        self.since = now
        self.until = now + LOAD_TIMEOUT_S
        self.lease = lease
        self.idle_since = None if lease is not None else now
        """Since when no request of ours waits for the load, or can still arrive to begin it."""

    def is_over(self, reading: ModelReading | None, began_at: float, usual_s: float) -> bool:
        """Whether a scrape that began at `began_at` with this result ends the load, of a model that
        usually takes `usual_s`, 0 if that is not known."""
        if began_at < self.since:
            return False  # it may have seen the state before
        if reading is None or (reading.is_loaded and not reading.may_be_loading):
            return True
        if reading.is_loaded:
            if self.lease is None or self.lease.answered_at is not None:
                return True
            return 0.0 < usual_s < began_at - self.since
        return not reading.is_loading and self.idle_since is not None and self.idle_since < began_at


class ModelLoadTracker:
    """Pending loads by model, at most one each. O(1) a query, O(loads) at a release."""

    def __init__(self) -> None:
        self._pending: dict[str, ModelLoad] = {}
        self._took: OrderedDict[str, DecayingMean] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def start(self, model: str, address: Address, now: float, lease: Lease | None = None) -> None:
        """A request was sent to a server that must load the model first; without a lease the
        request is foreign."""
        self._pending[model] = ModelLoad(address, now, lease)

    def may_start(self, model: str) -> bool:
        """Whether no load of the model is pending."""
        return model not in self._pending

    def end(self, model: str, address: Address) -> None:
        """The load at that server is over; no error if none is pending there."""
        load = self._pending.get(model)
        if load is not None and load.address == address:
            del self._pending[model]

    def released(self, lease: Lease, now: float) -> None:
        """A request of ours ended: a load that it started has no request of ours any more. If its
        client left, it may still be in transit to the server, and begin the load there."""
        for load in self._pending.values():
            if load.lease is lease:
                load.lease = None
                load.idle_since = max(now, min(arrived_by(lease), now + ARRIVAL_S))

    def pending_at(self, address: Address) -> list[str]:
        """The models that one server is loading."""
        return [model for model, load in self._pending.items() if load.address == address]

    def over(
        self, address: Address, readings: Mapping[str, ModelReading], began_at: float
    ) -> list[str]:
        """The models whose loads are ended by a scrape of that server. If it shows when they are
        loaded, that is how long their loads take."""
        ended = []
        for model, load in self._pending.items():
            reading = readings.get(model)
            if load.address != address or not load.is_over(reading, began_at, self.usual_s(model)):
                continue
            ended.append(model)
            if reading is not None and reading.is_loaded and not reading.may_be_loading:
                self._learn(model, began_at - load.since)
        return ended

    def answered(self, lease: Lease, took_s: float) -> None:
        """The request of this lease was answered `took_s` later than one for a loaded model: what
        the load took that it started, if that is not known to be over."""
        for model, load in self._pending.items():
            if load.lease is lease and load.address == lease.address:
                self._learn(model, took_s)

    def usual_s(self, model: str) -> float:
        """How long a load of the model takes, in seconds; 0 if none was seen."""
        took = self._took.get(model)
        return 0.0 if took is None else took.value(0.0)

    def as_plain(self) -> PlainLoads:
        """How long loads take, by model, for `restore`. O(`MAX_MODELS`)."""
        return tuple((model, took.as_plain()) for model, took in self._took.items())

    def restore(self, plain: PlainLoads) -> None:
        """Know what another process knew, of models of which no load was seen here. Raises
        `ValueError` or `TypeError` for what is not from `as_plain`."""
        for model, (total_s, weight) in plain[-MAX_MODELS:]:
            if not (0.0 <= total_s < inf and 0.0 <= weight < inf):
                raise ValueError("this is no time of loads")
            if model not in self._took and len(self._took) < MAX_MODELS:
                took = self._took[model] = DecayingMean(DECAY)
                took.restore((total_s, weight))

    def _learn(self, model: str, took_s: float) -> None:
        took = self._took.get(model)
        if took is None:
            took = self._took[model] = DecayingMean(DECAY)
            if len(self._took) > MAX_MODELS:
                self._took.popitem(last=False)
        took.add(max(0.0, took_s))

    def expired(self, now: float) -> list[str]:
        """Give up the loads that took too long, and return their models."""
        late = [model for model, load in self._pending.items() if load.until <= now]
        for model in late:
            del self._pending[model]
        return late

    def next_expiry(self) -> float | None:
        """When `expired` must be called next, or None."""
        return min((load.until for load in self._pending.values()), default=None)
