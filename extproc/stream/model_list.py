"""`GET /v1/models` for the fleet: the models of all endpoints, and the names in the settings; and
`GET /v1/models/{name}`, one of them."""

import json
from collections.abc import Iterable
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.observation import ModelReading, ModelState

SERVERS: Final = "llamacpp"
OURS: Final = "coxswain"

Models = dict[str, dict[str, Any]]
"""OpenAI's objects by the model's name."""


def fleet_models(
    resolver: RequestResolver, created_at: int, allowed: frozenset[Address] | None = None
) -> Models | None:
    """The models of the fleet, or of the pool of this resolver, or of its endpoints that are
    `allowed`."""
    endpoints = (
        endpoint
        for endpoint in resolver.fleet
        if not endpoint.is_removed and (allowed is None or endpoint.address in allowed)
    )
    names = resolver.splits
    machines = resolver.names.loadable.values() if allowed is None else ()
    loadable = (reading for readings in machines for reading in readings.values())
    return models_of(endpoints, names, created_at, loadable)


def model_list(models: Models) -> bytes:
    """OpenAI's list as JSON."""
    return json.dumps({"object": "list", "data": list(models.values())}).encode()


def one_model(models: Models, name: str) -> bytes | None:
    """The model with this name or alias as JSON, None if there is none. A name that is the path of
    a file may lack its first slash: Envoy merges slashes."""
    names = {name, f"/{name}"}
    found = models.get(name) or next(
        (each for each in models.values() if not names.isdisjoint((each["id"], *each["aliases"]))),
        None,
    )
    return None if found is None else json.dumps(found).encode()


def models_of(
    endpoints: Iterable[Endpoint],
    names: Iterable[str],
    created_at: int,
    loadable: Iterable[ModelReading] = (),
) -> Models | None:
    """The models, None while no endpoint has reported one. O(models of the fleet).

    `status` is the state at the server where the model is nearest to being served. `meta.n_ctx` is
    the longest context of a slot, in tokens. `loadable` are models that keepers can load. `names`
    are those that the settings give to models or to a choice of them; `created_at` is the Unix
    time to show, which no server reports.
    """
    found: Models = {}
    for endpoint in endpoints:
        for model in endpoint.models:
            entry = found.setdefault(model.name, _entry(model.name, SERVERS, created_at))
            entry["aliases"] = sorted({*entry["aliases"], *model.aliases})
            _show_state(entry, model.state)
            if endpoint.context_tokens and not endpoint.is_router:
                known = entry.get("meta", {}).get("n_ctx", 0)
                entry["meta"] = {"n_ctx": max(known, endpoint.context_tokens)}
            for adapter in endpoint.adapter_ids:
                name = f"{model.name}:{adapter}"
                found.setdefault(name, _entry(name, SERVERS, created_at))
    for model in loadable:
        entry = found.setdefault(model.name, _entry(model.name, SERVERS, created_at))
        entry["aliases"] = sorted({*entry["aliases"], *model.aliases})
        if "status" not in entry or model.state is not ModelState.UNLOADED:
            _show_state(entry, model.state)
    if not found:
        return None
    for name in names:
        found.setdefault(name, _entry(name, OURS, created_at))
    return found


_ORDER: Final = {state.value: place for place, state in enumerate(ModelState)}


def _show_state(entry: dict[str, Any], state: ModelState) -> None:
    """Show the state, unless another server has the model in a better one. A model that could not
    be loaded has llama-server's own `failed`, too."""
    known = entry.get("status")
    if known is None or _ORDER[state.value] < _ORDER[known["value"]]:
        entry["status"] = {"value": state.value}
        if state is ModelState.FAILED:
            entry["status"]["failed"] = True


def _entry(name: str, owner: str, created_at: int) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": created_at,
        "owned_by": owner,
        "aliases": [],
    }
