"""Counts requests and tokens by endpoint and model.

Requests are counted as they end. Tokens are counted from what scrapes show of the busy slots, so a
request costs nothing for them: the counts are what was seen, foreign requests included. What a
server generates between the last scrape of a request and its end is not in them.

The model is one that the endpoint reports, never a text of a client: it has the name of the
endpoint's only model, or that of the router's model by the name or alias in the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.membership import Fleet
from extproc.core.observation import Observation, SlotReading
from extproc.telemetry import definitions
from extproc.telemetry.counters import Counter, Distribution, Histogram
from extproc.telemetry.definitions import Family
from extproc.telemetry.reading import Values

MAX_ENDPOINTS: Final = 1000
"""Further endpoints are summed up under one label value."""
MAX_MODELS: Final = 32
"""Further models of an endpoint are summed up under one label value."""
MAX_REMOVED: Final = 1000
"""Endpoints that left the fleet, and of which something is kept until somebody reads."""
OTHERS: Final = "others"
HELD_SLOT: Final = frozenset({Outcome.SERVED, Outcome.BROKEN})
"""The outcomes of requests that had a slot."""
Labels = tuple[str, ...]


class EndpointCounts:
    """Belongs to one event loop; a request or a busy slot costs about a microsecond."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._endpoints: dict[Address, _Counts] = {}
        self.generated_tokens: int | None = None
        """The sum over all endpoints since the start; None if none has reported its tokens."""

    def record(self, record: ExchangeRecord) -> None:
        """An exchange ended; only those that had a slot count."""
        if record.endpoint is None or record.outcome not in HELD_SLOT:
            return
        endpoint = self._fleet.get(record.endpoint)
        if endpoint is None:
            return
        counts = self._of(endpoint.address)
        model = counts.label(model_of(endpoint, record.model))
        counts.requests.add(model, _result(record))
        if record.first_token_s is not None:
            histogram = counts.first_token.get(model)
            if histogram is None:
                histogram = Histogram(definitions.ENDPOINT_FIRST_TOKEN.buckets)
                counts.first_token[model] = histogram
            histogram.observe(record.first_token_s - record.waited_s)

    def scraped(self, observation: Observation) -> None:
        """Count the tokens that the busy slots show beyond those of the scrape before."""
        endpoint = self._fleet.get(observation.address)
        if endpoint is None or observation.busy_slots is None:
            return
        more = self._of(endpoint.address).see(endpoint, observation)
        self.generated_tokens = (self.generated_tokens or 0) + more

    def read(self, labels: Mapping[Address, str]) -> dict[Family, Values]:
        """The metrics by endpoint label and model. Endpoints that left are forgotten."""
        self._forget_removed()
        requests: dict[Labels, int] = {}
        prompt: dict[Labels, int] = {}
        generated: dict[Labels, int] = {}
        first_token: dict[Labels, Distribution] = {}
        for address, counts in self._endpoints.items():
            label = labels.get(address)
            if label is None:
                continue
            _add(requests, label, counts.requests)
            _add(prompt, label, counts.prompt)
            _add(generated, label, counts.generated)
            for model, histogram in counts.first_token.items():
                known = first_token.get((label, model))
                read = histogram.read()
                first_token[label, model] = read if known is None else known.plus(read)
        return {
            definitions.ENDPOINT_REQUESTS: requests,
            definitions.ENDPOINT_FIRST_TOKEN: first_token,
            definitions.ENDPOINT_PROMPT_TOKENS: prompt,
            definitions.ENDPOINT_GENERATED_TOKENS: generated,
        }

    def _of(self, address: Address) -> "_Counts":
        counts = self._endpoints.get(address)
        if counts is None:
            if len(self._endpoints) > MAX_REMOVED + 2 * len(self._fleet):
                self._forget_removed()  # nobody reads
            counts = self._endpoints[address] = _Counts()
        return counts

    def _forget_removed(self) -> None:
        for address in [each for each in self._endpoints if each not in self._fleet]:
            del self._endpoints[address]


def endpoint_labels(fleet: Fleet) -> dict[Address, str]:
    """The label values of endpoints: a name if it is unique, else the address. O(fleet)."""
    labels: dict[Address, str] = {}
    for endpoint in fleet:
        address = endpoint.address
        labels[address] = OTHERS if len(labels) >= MAX_ENDPOINTS else fleet.name_of(address)
    return labels


def model_of(endpoint: Endpoint, name: str) -> str:
    """The model that serves a request with this model name here; empty if it is not known."""
    if len(endpoint.models) == 1 and not endpoint.is_router:
        return endpoint.models[0].name
    model = endpoint.models_by_name.get(name)
    return "" if model is None else model.name


@dataclass(slots=True)
class _Task:
    """What scrapes showed of one task."""

    decoded: int = 0
    is_prompt_counted: bool = False


class _Counts:
    """One endpoint's."""

    __slots__ = ("_models", "_tasks", "first_token", "generated", "prompt", "requests")

    def __init__(self) -> None:
        self.requests = Counter()
        self.prompt = Counter()
        self.generated = Counter()
        self.first_token: dict[str, Histogram] = {}
        self._models: set[str] = set()
        self._tasks: dict[tuple[str, int], _Task] | None = None

    def label(self, model: str) -> str:
        """The label value of this model."""
        if model not in self._models:
            if len(self._models) >= MAX_MODELS:
                return OTHERS
            self._models.add(model)
        return model

    def see(self, endpoint: Endpoint, observation: Observation) -> int:
        """Count what an observation shows; returns the number of newly generated tokens."""
        known, tasks = self._tasks, {}
        generated = 0
        for reading in observation.slot_readings:
            task = (reading.model, reading.task_id)
            before = (known or {}).get(task) or _Task()
            tasks[task] = now = _seen(reading, before)
            model = self.label(reading.model or model_of(endpoint, ""))
            # A task that was there before our first scrape was counted by nobody or another picker.
            if known is None:
                continue
            if now.decoded > before.decoded:
                generated += now.decoded - before.decoded
                self.generated.add(model, count=now.decoded - before.decoded)
            if now.is_prompt_counted and not before.is_prompt_counted:
                self.prompt.add(model, count=reading.whole_prompt_tokens or 0)
        self._tasks = tasks
        return generated


def _seen(reading: SlotReading, before: _Task) -> _Task:
    decoded = reading.decoded_tokens or 0
    if decoded < before.decoded:
        return _Task(decoded, bool(decoded))  # another process, which numbers from 0 again
    has_prompt = before.is_prompt_counted or bool(decoded)  # its length is known from here on
    return _Task(decoded, has_prompt)


def _result(record: ExchangeRecord) -> str:
    if record.outcome is Outcome.BROKEN:
        return "broken"
    if record.status >= 500:
        return "server_error"
    return "client_error" if record.status >= 400 else "ok"


def _add(sums: dict[Labels, int], label: str, counter: Counter) -> None:
    for values, count in counter.read().items():
        key = (label, *values)
        sums[key] = sums.get(key, 0) + count
