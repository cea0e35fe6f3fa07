"""Resolves the model and adapter names in requests from what the fleet has reported.

A server reports its models and adapters in its first scrape. Until all have reported, an unknown
name may be that of an adapter: no endpoint serves it then, and the request is queued.

    base:adapter          while a server has not reported; if all such servers are down and another
                          serves, only if the base is a model's name
    x-lora-adapter, or    while a server that is not down has not reported
      numbers in lora

A name with a colon that was found to be no adapter's counts as a model's name from then on, until
an endpoint reports an adapter of that name: servers that join later do not delay its requests.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum

from extproc.core.address import Address
from extproc.core.fleet.aliases import MAX_REMEMBERED, ModelIndex
from extproc.core.fleet.catalog import FleetCatalog
from extproc.core.fleet.endpoint import Endpoint, Intent
from extproc.core.fleet.health import UNREACHED
from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.splits import Splits
from extproc.core.observation import ModelReading
from extproc.core.prompt_blocks import Seed, reseeded
from extproc.core.request import Request


class Unreported(IntEnum):
    """Which servers have not reported their models yet."""

    NONE = 0
    ONLY_DOWN = 1  # servers that are down, while another serves
    SOME = 2


class ModelNames:
    """Every call is O(names of one request or endpoint), or O(endpoints that have not reported)."""

    def __init__(self, fleet: Fleet, splits: Splits, *, is_lenient: bool) -> None:
        """`is_lenient`: a request for an unknown model may go anywhere."""
        self._fleet = fleet
        self._splits = splits
        self._is_lenient = is_lenient
        self.models = ModelIndex()
        self.adapters = ModelIndex()
        self.catalog = FleetCatalog()
        self._unreported: dict[Address, Endpoint] = {}
        self._plain: dict[str, None] = {}
        self.loadable: dict[str, Mapping[str, ModelReading]] = {}
        """By machine with a keeper: the models that it can load, by all of their names."""
        self._kept_at: dict[str, frozenset[Address]] = {}
        """By machine with a keeper: where its models are served when they are loaded."""
        self._strays: dict[Address, Endpoint] = {}
        """Kept endpoints whose machine has not said yet which models it has."""

    def renew(self, splits: Splits, *, is_lenient: bool) -> None:
        """Other splits, or another way with unknown models."""
        self._splits = splits
        self._is_lenient = is_lenient

    # Reports of endpoints

    def expect(self, endpoint: Endpoint) -> None:
        """The endpoint joined the fleet."""
        if not endpoint.has_reported:
            self._unreported[endpoint.address] = endpoint
        self._note_stray(endpoint)

    def report(self, endpoint: Endpoint) -> frozenset[str]:
        """Apply its models and adapters; returns the model names that are no longer reported."""
        address = endpoint.address
        if endpoint.has_reported:
            self._unreported.pop(address, None)
        else:
            self._unreported[address] = endpoint
        self.adapters.report(address, endpoint.adapter_ids)
        self.catalog.report(address, endpoint.models_by_name, endpoint.adapter_ids)
        return self.models.report(address, endpoint.models_by_name)

    def forget(self, address: Address) -> frozenset[str]:
        """The endpoint left the fleet; returns the model names that are no longer reported."""
        self._unreported.pop(address, None)
        self._strays.pop(address, None)
        self.adapters.report(address, ())
        self.catalog.forget(address)
        return self.models.report(address, ())

    def set_loadable(
        self, machine: str, readings: Mapping[str, ModelReading], addresses: frozenset[Address]
    ) -> frozenset[str]:
        """Set the models that a machine can load, by all of their names, and where; returns the
        names that are no longer known. Names of machines and addresses of endpoints never meet."""
        if readings:
            self.loadable[machine] = readings
            self._kept_at[machine] = addresses
            self.catalog.report(machine, readings, {})
        else:
            self.loadable.pop(machine, None)
            self._kept_at.pop(machine, None)
            self.catalog.forget(machine)
        # Endpoints of a machine that is gone are no strays: it has said what it had.
        for endpoint in self._fleet if readings else list(self._strays.values()):
            self._note_stray(endpoint)
        return self.models.report(machine, readings)

    def loadable_at(self) -> dict[str, tuple[Mapping[str, ModelReading], frozenset[Address]]]:
        """By machine with a keeper: the models that it can load, by all of their names, and where
        they are served."""
        return {name: (self.loadable[name], self._kept_at[name]) for name in self.loadable}

    def _note_stray(self, endpoint: Endpoint) -> None:
        """Until its machine has reported, a name that nobody knows may be another model there."""
        address = endpoint.address
        is_kept = endpoint.spec.kept_models > 0 and not endpoint.is_removed
        if is_kept and not any(address in addresses for addresses in self._kept_at.values()):
            self._strays[address] = endpoint
        else:
            self._strays.pop(address, None)

    def is_premature(self, model: str | None) -> bool:
        """Whether a machine that has not reported its models may have this one: a request for it
        must not meet the first server of another model."""
        return bool(self._strays) and model is not None and not self.models.is_known(model)

    def unreported(self) -> Unreported:
        """Which servers have not reported. In an empty or leaving fleet all are still to come."""
        awaited = [
            endpoint
            for endpoint in self._unreported.values()
            if endpoint.intent is Intent.ACTIVE and not endpoint.is_removed
        ]
        if not awaited and self._has_members():
            return Unreported.NONE
        if any(endpoint.health not in UNREACHED for endpoint in awaited):
            return Unreported.SOME
        serving = (one for one in self._fleet if one.is_serving and not one.is_removed)
        is_served = any(one.has_reported for one in serving)
        return Unreported.ONLY_DOWN if is_served else Unreported.SOME

    def _has_members(self) -> bool:
        return any(not endpoint.is_removed for endpoint in self._fleet)

    # Names in requests

    def split(self, name: str | None) -> tuple[str | None, str | None]:
        """The model and the adapter that a name stands for; model names may contain colons too."""
        if name is None or ":" not in name or self.models.is_known(name) or name in self._splits:
            return name, None
        base, _, adapter = name.rpartition(":")
        if not self.adapters.was_ever_known(adapter):
            return name, None
        return base or None, adapter

    def is_ambiguous(
        self,
        model: str | None,
        adapter: str | None,
        numbers: frozenset[int],
        unreported: Unreported | None = None,
    ) -> bool:
        """Whether a name may be that of an adapter that a server has not reported yet.
        `unreported` is the result of `unreported()`, if the caller has it. So is the name of a
        model that a machine with a keeper may have."""
        if self._strays and self.is_premature(model):
            return True
        if not self._unreported and self._has_members():
            return False
        is_named = adapter is not None or bool(numbers)
        if not is_named and (model is None or ":" not in model):
            return False
        unreported = self.unreported() if unreported is None else unreported
        if unreported is Unreported.SOME and self._is_unknown_adapter(adapter, numbers):
            return True
        return adapter is None and self._may_be_adapter(model, unreported)

    def _is_unknown_adapter(self, adapter: str | None, numbers: frozenset[int]) -> bool:
        if adapter is not None and not self.adapters.was_ever_known(adapter):
            return True
        return bool(numbers) and not self.catalog.has_adapters(numbers)

    def _may_be_adapter(self, name: str | None, unreported: Unreported) -> bool:
        if unreported is Unreported.NONE or name is None or name in self._plain:
            return False
        base, colon, adapter = name.rpartition(":")
        if not colon or not adapter or name in self._splits or self.models.was_ever_known(name):
            return False
        if unreported is Unreported.SOME:
            return True
        is_base = not base or base in self._splits or self.models.is_known(base)
        return is_base and self._is_lenient  # a strict fleet rejects it, and loses nothing

    def remember_as_model(self, name: str | None) -> None:
        """A request was resolved with this as its model name: it is no adapter's."""
        if name is not None and ":" in name and name not in self._plain:
            self._plain[name] = None
            if len(self._plain) > MAX_REMEMBERED:
                del self._plain[next(iter(self._plain))]

    def split_adapter(self, request: Request) -> Request:
        """The request with its model name split again, by what is known now."""
        if request.adapter is not None:
            return request
        model, adapter = self.split(request.model)
        if adapter is None:
            return request
        blocks = reseeded(
            request.prompt_blocks,
            self.seed_of(request),
            self.cache_key_seed(model, adapter, frozenset()),
        )
        return replace(request, model=model, adapter=adapter, prompt_blocks=blocks)

    # Seeds of prompt chains

    def seed_of(self, request: Request) -> Seed:
        """The seed of the request's prompt chain."""
        return self.cache_key_seed(request.model, request.adapter, request.adapter_numbers)

    def cache_key_seed(
        self, model: str | None, adapter: str | None, numbers: frozenset[int]
    ) -> Seed:
        """The seed of a prompt chain for that model with those adapters."""
        name = None if model is None else self.catalog.canonical_name(model)
        return (name, adapter, *sorted(numbers))
