"""Claims about extproc/stream/model_list.py: what the whole fleet serves, as one list."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import (
    AdapterReading,
    ModelReading,
    ModelState,
    Observation,
    ScrapeStatus,
)
from extproc.stream.model_list import Models, model_list, models_of, one_model


def endpoint(
    *models: ModelReading, adapters: tuple[str, ...] = (), context_tokens: int | None = None
) -> Endpoint:
    address = Address("10.0.0.1", 8000)
    found = Endpoint(EndpointSpec(address=address))
    found.observe(
        Observation(
            address=address,
            began_at=1.0,
            answered_at=1.0,
            status=ScrapeStatus.READY,
            models=models,
            context_tokens=context_tokens,
            adapters=tuple(AdapterReading(id=n, name=name) for n, name in enumerate(adapters)),
        ),
        HealthOptions(),
    )
    return found


def listed(*endpoints: Endpoint, names: tuple[str, ...] = ()) -> dict[str, Any]:
    found = models_of(endpoints, names, 7)
    assert found is not None
    whole = json.loads(model_list(found))
    assert whole["object"] == "list"
    by_id = {one["id"]: one for one in whole["data"]}
    assert len(by_id) == len(whole["data"]), "each once"
    return by_id


def test_each_model_once_with_the_aliases_of_all_its_servers() -> None:
    a, b = (ModelReading(name="tiny", aliases=(alias,)) for alias in "ab")
    found = listed(endpoint(b), endpoint(a), endpoint(ModelReading(name="large")))
    assert list(found) == ["tiny", "large"]
    assert found["tiny"]["aliases"] == ["a", "b"]
    assert {(one["object"], one["created"], one["owned_by"]) for one in found.values()} == {
        ("model", 7, "llamacpp")
    }


def test_a_model_is_loaded_if_any_server_has_it_loaded() -> None:
    cold = endpoint(ModelReading(name="tiny", is_loaded=False))
    warm = endpoint(ModelReading(name="tiny"))
    for endpoints in ((cold, warm), (warm, cold)):
        assert listed(*endpoints)["tiny"]["status"] == {"value": "loaded"}
    assert listed(cold)["tiny"]["status"] == {"value": "unloaded"}


STATES = ("sleeping", "loading", "downloading", "failed", "unloaded")


@pytest.mark.parametrize("word", STATES)
def test_a_routers_own_word_on_a_model_is_shown(word: str) -> None:
    """A model that could not be loaded has llama-server's own mark, too."""
    reading = ModelReading(
        name="tiny",
        is_loaded=False,
        is_loading=word == "loading",
        slots=2,
        reported=ModelState(word),
    )
    status = listed(endpoint(reading))["tiny"]["status"]
    assert status == {"value": word, **({"failed": True} if word == "failed" else {})}


def test_the_server_that_is_nearest_to_serving_counts() -> None:
    """In either order, beside a keeper that could load it as well."""
    in_order = ["loaded", *STATES[:3], "unloaded", "failed"]
    readings = [
        ModelReading(name="tiny", is_loaded=word == "loaded", reported=ModelState(word))
        for word in in_order
    ]
    for better, worse in itertools.pairwise(readings):
        for pair in ((better, worse), (worse, better)):
            shown = listed(*map(endpoint, pair))["tiny"]["status"]
            assert shown == {"value": better.state.value}
    loading = ModelReading(name="tiny", is_loaded=False, reported=ModelState.LOADING)
    idle = ModelReading(name="tiny", is_loaded=False)
    (kept,) = (models_of([], (), 7, [idle, loading]) or {}).values()
    assert kept["status"] == {"value": "loading"}
    (kept,) = (models_of([endpoint(readings[-1])], (), 7, [idle]) or {}).values()
    assert kept["status"]["value"] == "failed", "the server's own word"


def test_names_of_the_settings_are_models_too() -> None:
    """But a server's own word on a name counts before."""
    found = listed(endpoint(ModelReading(name="tiny")), names=("chat", "tiny"))
    assert [(name, one["owned_by"]) for name, one in found.items()] == [
        ("tiny", "llamacpp"),
        ("chat", "coxswain"),
    ]


def test_adapters_are_listed_as_they_are_named() -> None:
    found = listed(endpoint(ModelReading(name="tiny"), adapters=("bard", "poet")))
    assert list(found) == ["tiny", "tiny:bard", "tiny:poet"]


def test_where_no_server_has_reported_there_is_no_list() -> None:
    assert models_of([endpoint()], ("chat",), 7) is None


def test_one_model_is_found_by_its_name_or_an_alias() -> None:
    """As it stands in the list."""
    served = endpoint(ModelReading(name="org/tiny:Q4", aliases=("tiny",)), adapters=("poet",))
    found: Models = models_of([served], ("chat",), 7) or {}
    for name in ("org/tiny:Q4", "tiny"):
        assert json.loads(one_model(found, name) or b"") == found["org/tiny:Q4"]
    for name in ("org/tiny:Q4:poet", "chat"):
        assert json.loads(one_model(found, name) or b"")["id"] == name
    by_file = models_of([endpoint(ModelReading(name="/models/tiny.gguf"))], (), 7) or {}
    assert one_model(by_file, "models/tiny.gguf") is not None
    assert one_model(found, "org") is one_model(found, "") is None


def test_what_a_keeper_can_load_is_listed() -> None:
    """Also where no server runs; what is loaded is listed as loaded."""
    readings = [ModelReading(name="a", aliases=("x",), is_loaded=False)]
    alone = list((models_of([], (), 7, readings) or {}).values())
    assert [(one["id"], one["aliases"], one["status"]["value"]) for one in alone] == [
        ("a", ["x"], "unloaded")
    ]
    loaded = endpoint(ModelReading(name="a"))
    (both,) = (models_of([loaded], (), 7, readings) or {}).values()
    assert both["status"]["value"] == "loaded" and both["aliases"] == ["x"]


def test_the_longest_context_is_listed_as_llama_server_does() -> None:
    """Absent where no server reports it, and for a router, whose models may differ."""
    tiny, large = ModelReading(name="tiny"), ModelReading(name="large")
    found = listed(
        endpoint(tiny, context_tokens=8192), endpoint(tiny, context_tokens=512), endpoint(large)
    )
    assert found["tiny"]["meta"] == {"n_ctx": 8192} and "meta" not in found["large"]
    models = (ModelReading(name=name, slots=2) for name in ("tiny", "large"))
    routed = listed(endpoint(*models, context_tokens=4096))
    assert "meta" not in routed["tiny"]
