"""The models and adapters that the fleet serves, each kind of server stored once.

Two servers are of one kind if they report the same models under the same names, or adapters with
the same numbers. A fleet of a thousand servers has a few kinds, so a query about all of them is
O(kinds). The contexts of slots are stored alike.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Generic, TypeVar

from extproc.core.address import Address
from extproc.core.learner import Learner
from extproc.core.observation import ModelReading

K = TypeVar("K")
NO_NAMES: Final[frozenset[str]] = frozenset()
Naming = frozenset[tuple[str, str]]
"""For one kind of server: each name with the name of the model that it stands for there."""


class RefCounts(Generic[K]):
    """How many servers are of each kind. Every call is O(1)."""

    def __init__(self) -> None:
        self._of: dict[Hashable, K] = {}
        self._count: Counter[K] = Counter()

    def __iter__(self) -> Iterator[K]:
        return iter(self._count)

    def report(self, server: Hashable, kind: K | None) -> bool:
        """Set the kind of a server, None if it is gone; returns whether the kinds changed."""
        old = self._of.get(server)
        if kind == old:
            return False
        is_changed = False
        if kind is None:
            del self._of[server]
        else:
            self._of[server] = kind
            is_changed = kind not in self._count
            self._count[kind] += 1
        if old is not None:
            self._count[old] -= 1
            if not self._count[old]:
                del self._count[old]
                is_changed = True
        return is_changed


class FleetCatalog:
    """The kinds of servers. A report is O(names of one server); results that depend on all kinds
    are computed when a kind appears or disappears."""

    def __init__(self) -> None:
        self._namings: RefCounts[Naming] = RefCounts()
        self._numbers: RefCounts[frozenset[int]] = RefCounts()
        self._readings: dict[Address | str, Mapping[str, ModelReading]] = {}
        self._canonical_names: dict[str, str] = {}
        self._known: frozenset[str] = frozenset()
        self._models_of: dict[str, set[str]] = {}
        self.has_several_models = False
        """Whether the fleet serves more than one model."""

    def report(
        self,
        address: Address | str,
        readings: Mapping[str, ModelReading],
        adapter_ids: Mapping[str, int],
    ) -> None:
        """Set what a server has: its models by all of their names, and its adapters' numbers."""
        self._numbers.report(address, frozenset(adapter_ids.values()) or None)
        if self._readings.get(address) is readings:
            return
        self._readings[address] = readings
        naming = frozenset((name, reading.name) for name, reading in readings.items())
        if self._namings.report(address, naming or None):
            self._recompute()

    def forget(self, address: Address | str) -> None:
        """The endpoint left the fleet; no error if it is unknown."""
        self._numbers.report(address, None)
        self._readings.pop(address, None)
        if self._namings.report(address, None):
            self._recompute()

    def has_adapters(self, numbers: frozenset[int]) -> bool:
        """Whether one server has an adapter for each of these numbers."""
        return any(numbers <= kind for kind in self._numbers)

    def canonical_name(self, name: str) -> str:
        """One name for all that stand for the same model; the name itself if it is unknown.

        Names that are one model on one server and two on another are not the same.
        """
        return self._canonical_names.get(name, name)

    def model_named(self, name: str) -> str:
        """The name of the model that a name stands for; empty if no server reports it."""
        return self.canonical_name(name) if name in self._known else ""

    def models_named(self, name: str) -> AbstractSet[str]:
        """The models that servers have under this name, as they call them; the caller does not
        change them."""
        return self._models_of.get(name, NO_NAMES)

    def _recompute(self) -> None:
        """O(names of all kinds): a router may have thousands, and requests wait meanwhile."""
        groups: dict[str, set[str]] = {}
        models: set[str] = set()
        self._models_of = {}
        for naming in self._namings:
            for name, model in naming:
                models.add(model)
                self._models_of.setdefault(name, set()).add(model)
                one, other = groups.setdefault(name, {name}), groups.setdefault(model, {model})
                if one is not other:
                    if len(one) < len(other):
                        one, other = other, one
                    one |= other
                    groups.update(dict.fromkeys(other, one))
        self.has_several_models = len(models) > 1
        self._known = frozenset(groups)
        split = self._split(groups)
        self._canonical_names = {}
        for number, group in {id(group): group for group in groups.values()}.items():
            if len(group) > 1 and number not in split:
                self._canonical_names |= dict.fromkeys(group, min(group & models))

    def _split(self, groups: Mapping[str, set[str]]) -> set[int]:
        """The ids of those groups of names that stand for several models on some server."""
        found: set[int] = set()
        for naming in self._namings:
            models: dict[int, str] = {}
            for name, model in naming:
                group = id(groups[name])
                if models.setdefault(group, model) != model:
                    found.add(group)
        return found


class ContextSizes(Learner):
    """The tokens that a slot of each endpoint holds, and will hold of each model that a machine can
    load, as far as they are known. Every call is O(1), a new size O(sizes)."""

    def __init__(self) -> None:
        self._sizes: RefCounts[int] = RefCounts()
        self._loadable: dict[str, tuple[str, ...]] = {}
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
        if self._sizes.report(address, tokens or None):
            self.least = min(self._sizes, default=0)

    def forget(self, address: Address | tuple[str, str]) -> None:
        """The endpoint left the fleet; no error if it is unknown."""
        self.report(address, None)
