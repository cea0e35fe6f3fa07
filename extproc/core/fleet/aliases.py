"""The models that the fleet serves, by name and alias.

A name is known while an endpoint of the fleet reports it. Names that were ever reported are
remembered, so that a strict fleet can distinguish a lost model from an unknown one.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from extproc.core.address import Address

MAX_REMEMBERED = 10_000
"""Names that were ever reported; the oldest are forgotten first."""


class ModelMatch(Enum):
    """What happens to a request for a model that no endpoint reports."""

    LENIENT = "lenient"  # it may go anywhere, as llama-server itself ignores the name
    STRICT = "strict"  # rejected if no endpoint ever reported it; queued if its servers are gone


class ModelIndex:
    """Names by endpoint. O(names of one endpoint) a change, O(1) a query."""

    def __init__(self) -> None:
        self._names: dict[Address | str, frozenset[str]] = {}
        self._count: Counter[str] = Counter()
        self._ever: dict[str, None] = {}

    def report(self, address: Address | str, names: Iterable[str]) -> frozenset[str]:
        """Set what an endpoint reports, or a machine by its name can load; returns the names that
        none does any more."""
        new = frozenset(names)
        old = self._names.get(address, frozenset())
        if new == old:
            return frozenset()
        if new:
            self._names[address] = new
        else:
            self._names.pop(address, None)
        for name in new - old:
            self._count[name] += 1
            self._remember(name)
        lost = set()
        for name in old - new:
            self._count[name] -= 1
            if not self._count[name]:
                del self._count[name]
                lost.add(name)
        return frozenset(lost)

    def is_known(self, name: str) -> bool:
        """Whether an endpoint of the fleet reports it."""
        return name in self._count

    def was_ever_known(self, name: str) -> bool:
        """Whether an endpoint has reported it since the start."""
        return name in self._ever

    @property
    def is_empty(self) -> bool:
        """Whether no endpoint has ever reported a model: then nothing is known about any name."""
        return not self._ever

    def _remember(self, name: str) -> None:
        self._ever.pop(name, None)
        self._ever[name] = None
        if len(self._ever) > MAX_REMEMBERED:
            del self._ever[next(iter(self._ever))]
