"""The LoRA adapters in use on each endpoint: llama.cpp batches only requests with equal ones."""

from extproc.core.address import Address
from extproc.core.request import Adapters


class AdapterUse:
    """Running requests by endpoint and adapters. Every call is O(1)."""

    def __init__(self) -> None:
        self._running: dict[Address, dict[Adapters, int]] = {}

    def began(self, address: Address, adapters: Adapters) -> None:
        """A request with these adapters began there."""
        running = self._running.get(address)
        if running is None:
            running = self._running[address] = {}
        running[adapters] = running.get(adapters, 0) + 1

    def ended(self, address: Address, adapters: Adapters) -> None:
        """A request that began has ended."""
        running = self._running[address]
        if running[adapters] > 1:
            running[adapters] -= 1
            return
        del running[adapters]
        if not running:
            del self._running[address]

    def has_others(self, address: Address, adapters: Adapters) -> bool:
        """Whether requests with other adapters than these run there."""
        running = self._running.get(address)
        return running is not None and (len(running) > 1 or adapters not in running)

    def clear(self) -> None:
        """Forget all requests, before they are counted again."""
        self._running.clear()
