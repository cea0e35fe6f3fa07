"""What the names in a request stand for, as far as the fleet has told.

A server tells its models and adapters when it is first looked at. Until all have told, a name
that nobody knows may be an adapter's: it is served by nobody then, and the request waits.

    base:adapter          while a server did not tell yet; where all that did not are down and
                          another serves, only if the base is a model's name
    x-lora-adapter, or    while a server did not tell yet that is not down
      numbers in lora

A name with a colon that was found to be no adapter's is a model's from then on, until somebody
reports an adapter of that name: servers that join later do not hold it up.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

from extproc.core.fleet.aliases import MAX_REMEMBERED, ModelIndex
from extproc.core.fleet.catalog import FleetCatalog
from extproc.core.fleet.endpoint import Intent
from extproc.core.fleet.health import Health
from extproc.core.prompt_blocks import reseeded

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.fleet.membership import Fleet
    from extproc.core.fleet.splits import Splits
    from extproc.core.prompt_blocks import Seed
    from extproc.core.request import Request


class Unreported(IntEnum):
    """Who did not tell yet what it serves."""

    NOBODY = 0
    ONLY_DOWN = 1  # servers that are down, while another serves
    SOMEBODY = 2


class ModelNames:
    """Every call is O(what one request or endpoint names), or O(endpoints that did not tell)."""

    def __init__(self, fleet: Fleet, splits: Splits, *, is_lenient: bool) -> None:
        """`is_lenient` tells that a model which nobody knows may go anywhere."""
        self._fleet = fleet
        self._splits = splits
        self._is_lenient = is_lenient
        self.models = ModelIndex()
        self.adapters = ModelIndex()
        self.catalog = FleetCatalog()
        self._untold: dict[Address, Endpoint] = {}
        self._plain: dict[str, None] = {}

    # What endpoints tell

    def expect(self, endpoint: Endpoint) -> None:
        """It joined the fleet."""
        if not endpoint.has_reported:
            self._untold[endpoint.address] = endpoint

    def report(self, endpoint: Endpoint) -> frozenset[str]:
        """Take over what it serves now; returns the models' names that nobody reports any more."""
        address = endpoint.address
        if endpoint.has_reported:
            self._untold.pop(address, None)
        else:
            self._untold[address] = endpoint
        self.adapters.report(address, endpoint.adapter_ids)
        self.catalog.report(address, endpoint.models_by_name, endpoint.adapter_ids)
        return self.models.report(address, endpoint.models_by_name)

    def forget(self, address: Address) -> frozenset[str]:
        """It left the fleet; returns the models' names that nobody reports any more."""
        self._untold.pop(address, None)
        self.adapters.report(address, ())
        self.catalog.forget(address)
        return self.models.report(address, ())

    def unreported(self) -> Unreported:
        """Who did not tell yet. Where nobody is, or all are leaving, all are still to come."""
        awaited = [
            endpoint
            for endpoint in self._untold.values()
            if endpoint.intent is Intent.ACTIVE and not endpoint.is_removed
        ]
        if not awaited and self._has_members():
            return Unreported.NOBODY
        if any(endpoint.health is not Health.DOWN for endpoint in awaited):
            return Unreported.SOMEBODY
        serving = (one for one in self._fleet if one.is_serving and not one.is_removed)
        is_served = any(one.has_reported for one in serving)
        return Unreported.ONLY_DOWN if is_served else Unreported.SOMEBODY

    def _has_members(self) -> bool:
        return any(not endpoint.is_removed for endpoint in self._fleet)

    # What requests name

    def split(self, name: str | None) -> tuple[str | None, str | None]:
        """The model and the adapter that a name stands for; colons also occur in models' names."""
        if name is None or ":" not in name or self.models.is_known(name) or name in self._splits:
            return name, None
        base, _, adapter = name.rpartition(":")
        if not self.adapters.was_ever_known(adapter):
            return name, None
        return base or None, adapter

    def is_ambiguous(self, request: Request, untold: Unreported | None = None) -> bool:
        """Whether a name in it may stand for an adapter that a server did not tell of yet.
        `unreported` spares asking again what `untold()` gave."""
        if not self._untold and self._has_members():
            return False
        is_named = request.adapter is not None or bool(request.adapter_numbers)
        if not is_named and (request.model is None or ":" not in request.model):
            return False
        untold = self.unreported() if untold is None else untold
        if untold is Unreported.SOMEBODY and self._is_unknown_adapter(request):
            return True
        return request.adapter is None and self._may_be_adapter(request.model, untold)

    def _is_unknown_adapter(self, request: Request) -> bool:
        if request.adapter is not None and not self.adapters.was_ever_known(request.adapter):
            return True
        numbers = request.adapter_numbers
        return bool(numbers) and not self.catalog.has_adapters(numbers)

    def _may_be_adapter(self, name: str | None, untold: Unreported) -> bool:
        if untold is Unreported.NOBODY or name is None or name in self._plain:
            return False
        base, colon, adapter = name.rpartition(":")
        if not colon or not adapter or name in self._splits or self.models.was_ever_known(name):
            return False
        if untold is Unreported.SOMEBODY:
            return True
        is_base = not base or base in self._splits or self.models.is_known(base)
        return is_base and self._is_lenient  # a strict fleet refuses it, and loses nothing

    def remember_as_model(self, name: str | None) -> None:
        """A request was understood with this as its model's name: it is no adapter's."""
        if name is not None and ":" in name and name not in self._plain:
            self._plain[name] = None
            if len(self._plain) > MAX_REMEMBERED:
                del self._plain[next(iter(self._plain))]

    def split_adapter(self, request: Request) -> Request:
        """The request with its model's name split anew, by what is known now."""
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

    # What makes prompts the same to a server

    def seed_of(self, request: Request) -> Seed:
        """Of the chain of the request's prompt."""
        return self.cache_key_seed(request.model, request.adapter, request.adapter_numbers)

    def cache_key_seed(
        self, model: str | None, adapter: str | None, numbers: frozenset[int]
    ) -> Seed:
        """Of the chain of a prompt for that model with those adapters."""
        name = None if model is None else self.catalog.canonical_name(model)
        return (name, adapter, *sorted(numbers))
