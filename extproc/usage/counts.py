"""What is counted, and by what."""

from dataclasses import dataclass, fields
from typing import Final, NamedTuple

OTHERS: Final = "others"
"""What further names are counted under, once there are too many."""


class UsageKey(NamedTuple):
    """Whose requests: `client` is the name of a client's key, never the key; empty without one.
    `objective` and `model` are names of the settings and of the fleet; empty where unknown."""

    client: str = ""
    objective: str = ""
    model: str = ""


TOO_MANY: Final = UsageKey(OTHERS, OTHERS, OTHERS)


@dataclass(slots=True, kw_only=True)
class UsageCounts:
    """Sums over requests.

    `requests` had a slot; `rejected` got none, but an error. `prompt_tokens` includes
    `cached_tokens`, which were found in a server's cache. `slot_s` is for how long slots were held,
    in slot-seconds. `uncounted` are those of the requests whose tokens are not known.
    """

    requests: int = 0
    rejected: int = 0
    uncounted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    slot_s: float = 0.0

    def add(self, other: "UsageCounts") -> None:
        """Add the counts of `other` to these."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTED: Final = tuple(field.name for field in fields(UsageCounts))
"""The names of the counts, in order."""
