"""Claims about extproc/settings/pool_section.py, and where endpoints may be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from extproc.app.options import dispatcher_options
from extproc.core.bounds import BoundKind
from extproc.envoy_config.options import envoy_options
from extproc.settings import Settings

POOLS: dict[str, Any] = {
    "chat": {"default": True, "hosts": ["Chat.example", "b.example:8080"]},
    "batch": {
        "header": {"name": "X-Team", "value": "batch"},
        "metadata": {"value": "batch"},
        "limits": {"running": 2},
        "models": {"night": "tiny"},
        "objectives": {"slow": {"criticality": "sheddable", "models": ["tiny"]}},
    },
}


def read(**written: Any) -> Settings:
    return Settings.model_validate({"pools": POOLS, **written})


def test_the_core_gets_each_pool() -> None:
    """Its own names of models and objectives, or those that are for all pools; its limits as a
    bound."""
    settings = read(objectives={"fast": {}}, models={"all": "small"})
    options = dispatcher_options(settings)
    resolver = options.resolver
    assert resolver.default_pool == "chat" and set(resolver.pools) == {"chat", "batch"}
    chat, batch = resolver.pools["chat"], resolver.pools["batch"]
    assert (chat.splits, batch.splits) == ({"all": {"small": 1.0}}, {"night": {"tiny": 1.0}})
    assert chat.objectives.of("fast", None).pool == "chat"
    assert chat.objectives.of(None, None).pool == "chat"
    for name in ("slow", "batch/slow"):
        assert batch.objectives.of(name, None).name == "batch/slow"
    assert batch.objectives.of("fast", "tiny").name == "batch/slow"
    assert options.bounds.limits[BoundKind.POOL, "batch"].running == 2
    assert dispatcher_options(Settings()).resolver.pools == {}


def test_other_settings_name_its_objectives_with_the_pool() -> None:
    assert read(spill={"objectives": ["batch/slow"]}).spill.objectives == ("batch/slow",)
    assert read(bounds={"objectives": {"batch/slow": {"running": 1}}})
    with pytest.raises(ValidationError, match="no objective"):
        read(spill={"objectives": ["chat/slow"]})


def test_envoy_sends_what_chooses_a_pool() -> None:
    options = envoy_options(read())
    assert options.pool_headers == ("x-team", ":authority")
    assert options.pool_attributes == (
        "xds.route_metadata.filter_metadata['coxswain.pool']['name']",
    )
    assert options.pool_namespaces == ("coxswain.pool",)
    assert envoy_options(Settings()).pool_headers == ()


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"pools": {"a": {}}}, "no request would be for this pool"),
        ({"pools": {"a/b": {"default": True}}}, "pattern"),
        ({"pools": {"a": {"default": True}, "b": {"default": True}}}, "only one pool"),
        ({"pools": {"a": {"port": 1}, "b": {"port": 1}}}, "a and b claim the same .* port 1"),
        ({"pools": {"a": {"hosts": ["a b"]}}}, "write a host name"),
        ({"pools": {"a": {"header": {"name": "a b", "value": "c"}}}}, "not the name of a header"),
        ({"pools": {"a": {"metadata": {"key": "'", "value": "c"}}}}, "pattern"),
        ({"endpoints": [{"address": "a:1", "in_pool": "x"}]}, "no pool of the name x"),
        ({"discovery": {"dns": [{"name": "a", "port": 1, "in_pool": "x"}]}}, "no pool of the name"),
        ({"pools": {"a": {"port": 1}}, "endpoints": ["a:1"]}, "needs in_pool"),
        ({"machines": {"gpu-1": {"in_pool": "x"}}}, "gpu-1: there is no pool of the name x"),
        ({"scale": {"command": ["x"], "models": {"m": {}}}}, "scale.command cannot be used"),
        (
            {"pools": {"a": {"default": True, "limits": {"queue_timeout_s": 100}}}},
            "must not exceed queue.timeout_s",
        ),
    ],
)
def test_contradictions_are_said(written: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        read(**written)


def test_endpoints_without_a_pool_are_in_the_default_one() -> None:
    assert read(endpoints=["a:1"]).endpoints[0].in_pool is None
    assert Settings.model_validate({"endpoints": ["a:1"]}).pools == {}
