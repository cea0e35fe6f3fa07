"""What is counted, by what, and its sums in memory: since the start for metrics, and what the store
has not got yet."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

OTHERS: Final = "others"
"""What further names are counted under, once there are too many."""


class UsageKey(NamedTuple):
    """Whose requests: `client` is the name of a client's key, never the key; empty without one.
    `objective` and `model` are names of the settings and of the fleet; empty where unknown. `tier`
    is that of the endpoint, and the first for what never had one."""

    client: str = ""
    objective: str = ""
    model: str = ""
    tier: str = "1"


TOO_MANY: Final = UsageKey(OTHERS, OTHERS, OTHERS)


@dataclass(slots=True, kw_only=True)
class UsageCounts:
    """Sums over requests.

    `requests` had a slot; `rejected` got none, but an error. `prompt_tokens` includes
    `cached_tokens`, which were found in a server's cache. `slot_s` is for how long slots were held,
    in slot-seconds. `uncounted` are those of the requests whose tokens are not known. `cost` is
    their price, by the prices of endpoints in the settings.
    """

    requests: int = 0
    rejected: int = 0
    uncounted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    slot_s: float = 0.0
    cost: float = 0.0

    def add(self, other: "UsageCounts") -> None:
        """Add the counts of `other` to these."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTED: Final = tuple(field.name for field in fields(UsageCounts))
"""The names of the counts, in order."""
MAX_KEYS: Final = 1000
"""Of the metrics, and of each hour; further ones are summed up under `others`, in the file by
client."""
REAL: Final = frozenset({"slot_s", "cost"})
"""The counts that are no integers."""
HOUR_S: Final = 3600

Hourly = dict[tuple[int, UsageKey], UsageCounts]
"""By the Unix time at which the hour began, and by key."""


class Tally:
    """Belongs to one event loop. A count costs a microsecond."""

    def __init__(self) -> None:
        self._since_start: dict[UsageKey, UsageCounts] = {}
        self._unsaved: Hourly = {}

    def add(self, key: UsageKey, counts: UsageCounts, unix_s: float) -> None:
        """Count what ended at this time."""
        saved = key
        if key not in self._since_start and len(self._since_start) >= MAX_KEYS:
            key = TOO_MANY._replace(tier=key.tier)
            saved = key._replace(client=saved.client)  # its budgets are counted from the file
        self._since_start.setdefault(key, UsageCounts()).add(counts)
        _put(self._unsaved, int(unix_s) // HOUR_S * HOUR_S, saved, counts)

    def since_start(self) -> Mapping[UsageKey, UsageCounts]:
        """The sums by key; the caller does not change them."""
        return self._since_start

    def take(self) -> Hourly:
        """Remove and return what was counted since the last call."""
        taken, self._unsaved = self._unsaved, {}
        return taken

    def unsaved(self) -> Hourly:
        """What was counted since the last call of `take`; the caller does not change it."""
        return self._unsaved

    def put_back(self, taken: Hourly) -> None:
        """What was taken could not be saved: keep it for the next time."""
        for (hour, key), counts in taken.items():
            _put(self._unsaved, hour, key, counts)


def _put(hourly: Hourly, hour: int, key: UsageKey, counts: UsageCounts) -> None:
    sums = hourly.get((hour, key))
    if sums is None:
        sums = hourly[hour, key] = UsageCounts()
    sums.add(counts)
