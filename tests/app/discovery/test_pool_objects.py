"""Claims about extproc/app/discovery/pool_objects.py, over an API server of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from extproc.app.discovery.pool_objects import PoolObjects
from extproc.app.options import dispatcher_options
from extproc.app.service import Service
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality
from extproc.kubernetes.api_server import ApiServer
from extproc.settings import Settings
from tests.fakes.api_server import FakeApiServer
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import until

POOLS = [("serving", "llama")]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer(tmp_path) as found:
        yield found


def put_objective(api: FakeApiServer, name: str, priority: Any, pool: str = "llama") -> None:
    spec = {"priority": priority, "poolRef": {"name": pool}}
    api.put("inferenceobjectives", {"metadata": {"name": name}, "spec": spec})


def rule(names: list[str], **weights: int | None) -> dict[str, Any]:
    targets = [
        {"modelRewrite": model} if weight is None else {"modelRewrite": model, "weight": weight}
        for model, weight in weights.items()
    ]
    matches = [{"model": {"type": "Exact", "value": name}} for name in names]
    return {"matches": matches, "targets": targets}


def put_rewrite(
    api: FakeApiServer, name: str, *rules: Any, pool: str = "llama", created: str = "2026-01-01"
) -> None:
    metadata = {"name": name, "creationTimestamp": created}
    spec = {"poolRef": {"name": pool}, "rules": list(rules)}
    api.put("inferencemodelrewrites", {"metadata": metadata, "spec": spec})


class Following:
    def __init__(self, api: FakeApiServer) -> None:
        client = ApiServer(api.url, api.folder, PATIENCE_S, "the-role")
        self.objects = PoolObjects(client, lambda: None)
        self.objects.set(POOLS)

    def below(self, **settings: Any) -> Settings:
        return self.objects.below(Settings.model_validate(settings))

    async def have(self, **criticalities: str) -> None:
        await until(
            lambda: (
                {name: one.criticality for name, one in self.below().objectives.items()}
                == criticalities
            )
        )

    async def split(self, models: dict[str, dict[str, float]]) -> None:
        await until(lambda: self.below().models == models)


@asynccontextmanager
async def following(api: FakeApiServer) -> AsyncIterator[Following]:
    found = Following(api)
    try:
        yield found
    finally:
        await found.objects.aclose()


async def test_a_priority_is_a_criticality_as_the_settings_say(api: FakeApiServer) -> None:
    for name, priority in (("a", 10), ("b", 0), ("c", -1), ("d", None)):
        put_objective(api, name, priority)
    put_objective(api, "elsewhere", 10, pool="other")
    async with following(api) as found:
        await found.have(a="critical", b="standard", c="sheddable")
        discovery = {"critical_priority": 11, "sheddable_priority": -2}
        below = found.below(discovery=discovery).objectives
        assert {one.criticality for one in below.values()} == {"standard"}
        put_objective(api, "b", 1)
        api.remove("inferenceobjectives", "a")
        await found.have(b="critical", c="sheddable")


async def test_the_settings_go_before_what_was_written(api: FakeApiServer) -> None:
    put_objective(api, "a", 10)
    put_rewrite(api, "r", rule(["m"], x=1))
    async with following(api) as found:
        await found.have(a="critical")
        await found.split({"m": {"x": 1.0}})
        below = found.below(objectives={"a": {"weight": 2}}, models={"m": "y", "n": "z"})
        assert below.objectives["a"].criticality == "standard"
        assert below.models == {"m": {"y": 1.0}, "n": {"z": 1.0}}


async def test_a_rewrite_is_a_split_and_the_oldest_one_counts(
    api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    put_rewrite(api, "late", rule(["m"], never=1), rule(["o"], z=None), created="2026-02-02")
    put_rewrite(api, "early", rule(["m", "n"], x=9, y=1), rule(["n"], never=1))
    put_rewrite(api, "all", {"targets": [{"modelRewrite": "q"}]}, created="2025-01-01")
    put_rewrite(api, "elsewhere", rule(["p"], q=1), pool="other")
    async with following(api) as found:
        await found.split({"m": {"x": 9.0, "y": 1.0}, "n": {"x": 9.0, "y": 1.0}, "o": {"z": 1.0}})
        assert "inferencemodelrewrites all: a rule is left out" in caplog.text
        found.objects.set([("serving", "other")])
        assert found.below().models == {"p": {"q": 1.0}}


async def test_what_is_written_is_for_the_pool_that_is_its_inference_pool(
    api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The settings of a pool go before it. Objectives that pools have in common stay, and keep
    their names."""
    put_objective(api, "gold", 10)
    put_objective(api, "fast", -5)
    put_objective(api, "bulk", -1, pool="night")
    put_objective(api, "lost", 1, pool="elsewhere")
    put_rewrite(api, "r", rule(["m"], x=1), rule(["o"], z=1))
    pools = {
        "chat": {"default": True},
        "night": {"hosts": ["n"], "objectives": {"own": {}}, "models": {"m": "y"}},
    }
    settings = {"pools": pools, "objectives": {"fast": {}}, "models": {"o": "p"}}
    async with following(api) as found:
        found.objects.set(POOLS, {("serving", "llama"): ["chat"], ("serving", "night"): ["night"]})

        def resolvers() -> Mapping[str, ResolverOptions]:
            return dispatcher_options(found.below(**settings)).resolver.pools

        await until(
            lambda: (
                "gold" in resolvers()["chat"].objectives.by_name
                and "bulk" in resolvers()["night"].objectives.by_name
                and "m" in resolvers()["chat"].splits
            )
        )
        chat, night = resolvers()["chat"], resolvers()["night"]
        gold, bulk = chat.objectives.of("gold", None), night.objectives.of("bulk", None)
        assert (gold.name, gold.pool, gold.criticality) == (
            *("chat/gold", "chat"),
            Criticality.CRITICAL,
        )
        assert (bulk.name, bulk.criticality) == ("night/bulk", Criticality.SHEDDABLE)
        fast = chat.objectives.of("fast", None)
        assert (fast.name, fast.criticality) == ("fast", Criticality.STANDARD)
        assert set(night.objectives.by_name) == {"own", "night/own", "bulk", "night/bulk"}
        assert chat.splits == {"m": {"x": 1.0}, "o": {"p": 1.0}}
        assert night.splits == {"m": {"y": 1.0}}
        said = "inferenceobjectives lost in serving is left out: no pool here is its"
        assert caplog.text.count(said) == 1
        assert caplog.text.count("is left out") == 1


async def test_a_kind_that_is_missing_is_said(api: FakeApiServer) -> None:
    api.missing_kinds.add("inferencemodelrewrites")
    put_objective(api, "a", 10)
    async with following(api) as found:
        await found.have(a="critical")
        await until(lambda: bool(found.objects.problems))
        [problem] = found.objects.problems
        assert "the API server has no inferencemodelrewrites" in problem


async def test_a_picker_takes_what_was_written_while_it_runs(api: FakeApiServer) -> None:
    """And keeps it when its settings are applied again."""
    api.put("pods", {"metadata": {"name": "unready"}})
    put_objective(api, "gold", 5)
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    settings = Settings.model_validate(
        {
            "listen": anywhere,
            "discovery": {
                "kubernetes": [{"pool": "llama"}],
                "kubernetes_objectives": True,
                "kubernetes_api": api.url,
                "kubernetes_folder": str(api.folder),
            },
        }
    )
    service = Service(settings, lambda: settings)
    await service.start()
    try:

        def resolver() -> ResolverOptions:
            return service.dispatcher.options.resolver

        await until(lambda: "gold" in resolver().objectives.by_name)
        assert resolver().objectives.by_name["gold"].criticality is Criticality.CRITICAL
        put_rewrite(api, "r", rule(["m"], x=1))
        await until(lambda: resolver().splits == {"m": {"x": 1.0}})
        await service.settings.reload(is_dry_run=False)
        assert "gold" in resolver().objectives.by_name
        api.remove("inferenceobjectives", "gold")
        await until(lambda: "gold" not in resolver().objectives.by_name)
    finally:
        await service.stop()


async def test_pools_follow_the_inference_pools_that_discovery_names(api: FakeApiServer) -> None:
    """`poolRef` names an InferencePool: its pool is that of its entry in discovery, or the default
    one; else the one of the same name. A reload moves what was written with the entry."""
    api.put("pods", {"metadata": {"name": "unready"}})
    put_objective(api, "gold", 5)
    put_objective(api, "silver", 5, pool="llama-batch")
    put_objective(api, "bronze", 5, pool="named")
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")

    def read(in_pool: str) -> Settings:
        return Settings.model_validate(
            {
                "listen": anywhere,
                "pools": {
                    "chat": {"default": True},
                    "batch": {"hosts": ["b"]},
                    "named": {"hosts": ["n"]},
                },
                "discovery": {
                    "kubernetes": [
                        {"pool": "llama"},
                        {"pool": "llama-batch", "in_pool": in_pool},
                        {"selector": "app=x", "ports": [1], "in_pool": "named"},
                    ],
                    "kubernetes_objectives": True,
                    "kubernetes_api": api.url,
                    "kubernetes_folder": str(api.folder),
                },
            }
        )

    present = [read("batch")]
    service = Service(present[0], lambda: present[0])
    await service.start()
    try:

        def names() -> dict[str, set[str]]:
            pools = service.dispatcher.options.resolver.pools
            return {
                name: {each for each in pool.objectives.by_name if "/" not in each}
                for name, pool in pools.items()
            }

        await until(lambda: names() == {"chat": {"gold"}, "batch": {"silver"}, "named": {"bronze"}})
        present[0] = read("named")
        await service.settings.reload(is_dry_run=False)
        assert names() == {"chat": {"gold"}, "batch": set(), "named": {"silver", "bronze"}}
    finally:
        await service.stop()
