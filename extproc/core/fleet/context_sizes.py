"""The contexts of the fleet's slots: which sizes there are."""

from collections import Counter
from collections.abc import Mapping

from extproc.core.address import Address
from extproc.core.observation import ModelReading


class ContextSizes:
    """The tokens that a slot of each endpoint holds, and will hold of each model that a machine can
    load, as far as they are known. Every call is O(1), a new size O(sizes)."""

    def __init__(self) -> None:
        self._of: dict[Address | tuple[str, str], int] = {}
        self._loadable: dict[str, tuple[str, ...]] = {}
        self._counts: Counter[int] = Counter()
        self.least = 0
        """The smallest context; 0 if none is known."""

    def report_loadable(self, machine: str, readings: Mapping[str, ModelReading]) -> None:
        """The models that a machine can load; none when it is gone. O(models)."""
        for name in self._loadable.pop(machine, ()):
            self.forget((machine, name))
        if readings:
            self._loadable[machine] = tuple(readings)
        for name, reading in readings.items():
            self.report((machine, name), reading.context_tokens)

    def report(self, address: Address | tuple[str, str], tokens: int | None) -> None:
        """An endpoint was observed, or a machine's model is known."""
        if tokens == self._of.get(address):
            return
        self.forget(address)
        if tokens:
            self._of[address] = tokens
            self._counts[tokens] += 1
            self.least = min(self._counts)

    def forget(self, address: Address | tuple[str, str]) -> None:
        """The endpoint left the fleet; no error if it is unknown."""
        tokens = self._of.pop(address, None)
        if tokens is None:
            return
        self._counts[tokens] -= 1
        if not self._counts[tokens]:
            del self._counts[tokens]
            self.least = min(self._counts, default=0)
