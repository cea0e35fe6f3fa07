"""The contexts of the fleet's slots: which sizes there are."""

from collections import Counter

from extproc.core.address import Address


class ContextSizes:
    """The tokens that a slot of each endpoint holds, as far as they are known. Every call is O(1),
    a new size O(sizes)."""

    def __init__(self) -> None:
        self._of: dict[Address, int] = {}
        self._counts: Counter[int] = Counter()
        self.least = 0
        """The smallest context; 0 if none is known."""

    def report(self, address: Address, tokens: int | None) -> None:
        """An endpoint was observed."""
        if tokens == self._of.get(address):
            return
        self.forget(address)
        if tokens:
            self._of[address] = tokens
            self._counts[tokens] += 1
            self.least = min(self._counts)

    def forget(self, address: Address) -> None:
        """The endpoint left the fleet; no error if it is unknown."""
        tokens = self._of.pop(address, None)
        if tokens is None:
            return
        self._counts[tokens] -= 1
        if not self._counts[tokens]:
            del self._counts[tokens]
            self.least = min(self._counts, default=0)
