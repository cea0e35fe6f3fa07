"""What the fleet's servers are of, each kind once: questions about all of them cost O(kinds).

Two servers are of one kind if they report the same models under the same names, or adapters of
the same numbers. A fleet of a thousand servers has a few kinds.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from extproc.core.address import Address
    from extproc.core.observation import ModelReading

K = TypeVar("K")
Naming = frozenset[tuple[str, str]]
"""Of one kind of server: each name with the name of the model that it stands for there."""


class RefCounts(Generic[K]):
    """How many servers are of each kind. Every call is O(1)."""

    def __init__(self) -> None:
        self._of: dict[Address, K] = {}
        self._count: Counter[K] = Counter()

    def __iter__(self) -> Iterator[K]:
        return iter(self._count)

    def report(self, address: Address, kind: K | None) -> bool:
        """A server is of that kind now, or gone; returns whether other kinds exist than before."""
        old = self._of.get(address)
        if kind == old:
            return False
        is_changed = False
        if kind is None:
            del self._of[address]
        else:
            self._of[address] = kind
            is_changed = kind not in self._count
            self._count[kind] += 1
        if old is not None:
            self._count[old] -= 1
            if not self._count[old]:
                del self._count[old]
                is_changed = True
        return is_changed


class FleetCatalog:
    """Kinds of servers. A report is O(what one server has); what follows from all kinds is
    worked out once after a new kind came or an old one went."""

    def __init__(self) -> None:
        self._namings: RefCounts[Naming] = RefCounts()
        self._numbers: RefCounts[frozenset[int]] = RefCounts()
        self._readings: dict[Address, Mapping[str, ModelReading]] = {}
        self._same: dict[str, str] = {}
        self._has_several_models = False

    def report(
        self,
        address: Address,
        readings: Mapping[str, ModelReading],
        adapter_ids: Mapping[str, int],
    ) -> None:
        """What a server has now: its models by all of their names, its adapters' numbers."""
        self._numbers.report(address, frozenset(adapter_ids.values()) or None)
        if self._readings.get(address) is readings:
            return
        self._readings[address] = readings
        naming = frozenset((name, reading.name) for name, reading in readings.items())
        if self._namings.report(address, naming or None):
            self._work_out()

    def forget(self, address: Address) -> None:
        """It left the fleet; a stranger is no error."""
        self._numbers.report(address, None)
        self._readings.pop(address, None)
        if self._namings.report(address, None):
            self._work_out()

    @property
    def has_several_models(self) -> bool:
        """Whether the fleet serves more than one model."""
        return self._has_several_models

    def has_adapters(self, numbers: frozenset[int]) -> bool:
        """Whether one server has an adapter for each of its own numbers."""
        return any(numbers <= kind for kind in self._numbers)

    def canonical_name(self, name: str) -> str:
        """One name for all that stand for one model; the name itself if no server reports it.

        Names that are one model on one server and two on another are not the same.
        """
        return self._same.get(name, name)

    def _work_out(self) -> None:
        """O(names of all kinds): a router may have thousands, and requests wait meanwhile."""
        groups: dict[str, set[str]] = {}
        models: set[str] = set()
        for naming in self._namings:
            for name, model in naming:
                models.add(model)
                one, other = groups.setdefault(name, {name}), groups.setdefault(model, {model})
                if one is not other:
                    if len(one) < len(other):
                        one, other = other, one
                    one |= other
                    groups.update(dict.fromkeys(other, one))
        self._has_several_models = len(models) > 1
        split = self._split(groups)
        self._same = {}
        for number, group in {id(group): group for group in groups.values()}.items():
            if len(group) > 1 and number not in split:
                self._same |= dict.fromkeys(group, min(group & models))

    def _split(self, groups: Mapping[str, set[str]]) -> set[int]:
        """Of these groups of names, by their ids, those that are several models somewhere."""
        found: set[int] = set()
        for naming in self._namings:
            models: dict[int, str] = {}
            for name, model in naming:
                group = id(groups[name])
                if models.setdefault(group, model) != model:
                    found.add(group)
        return found
