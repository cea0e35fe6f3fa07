"""The roles in deploy/kubernetes allow what the engine and discovery do, and nothing else; the
chart's schema has every value."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.app.discovery.pool_objects import PoolObjects
from extproc.kubernetes.api_server import ApiServer
from extproc.processes.cluster.engine import Beat, Member
from extproc.processes.cluster.kubernetes import KubernetesEngine
from scraper.discovery.discovered_endpoint import EndpointEntry
from scraper.discovery.kubernetes import ROLE, KubernetesEndpoints, PodGroup
from tests.deploy.stack_files import DEPLOY
from tests.fakes.api_server import FakeApiServer
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import until
from tests.fakes.publications import Publications

VERBS = {"GET": "get", "POST": "create", "PUT": "update"}


def manifests(file: str = "cluster-role.yaml") -> dict[str, dict[str, Any]]:
    text = (DEPLOY / "kubernetes" / file).read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def allowed(file: str = "cluster-role.yaml") -> set[tuple[str, str, str, str]]:
    """API group, kind, name and verb of each thing that the role allows."""
    return {
        (group, kind, name, verb)
        for rule in manifests(file)["Role"]["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("file", ["cluster-role.yaml", "discovery-role.yaml"])
def test_the_role_is_bound_to_the_service_account(file: str) -> None:
    found = manifests(file)
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    [subject] = found["RoleBinding"]["subjects"]
    assert subject["name"] == manifests()["ServiceAccount"]["metadata"]["name"]


@pytest.mark.parametrize(
    ("in_chart", "origin"),
    [
        ("alerts.yml", "prometheus/alerts.yml"),
        ("dashboard.json", "grafana/dashboards/coxswain.json"),
    ],
)
def test_the_chart_has_the_files_of_deploy(in_chart: str, origin: str) -> None:
    """Copies, as Helm reads nothing outside of the chart, and links are lost in archives."""
    of_chart = DEPLOY / "helm/coxswain/files" / in_chart
    wrong = f"cp deploy/{origin} deploy/helm/coxswain/files/{in_chart}"
    assert not of_chart.is_symlink(), wrong
    assert of_chart.read_bytes() == (DEPLOY / origin).read_bytes(), wrong


def _group_and_kind(path: str) -> tuple[str, str]:
    parts = path.strip("/").split("/")
    return parts[1] if parts[0] == "apis" else "", parts[parts.index("namespaces") + 2]


async def test_the_engine_does_what_the_role_allows_and_the_role_nothing_more(
    tmp_path: Path,
) -> None:
    async with FakeApiServer(tmp_path) as api:
        engine = KubernetesEngine("prod", api.url, "serving", api.folder, 4.0)
        me = Member(id="a/1", name="a", address="a:9")
        for is_leading in (False, True):
            beat = Beat(
                member=me,
                is_candidate=True,
                is_leading=is_leading,
                has_lease=is_leading,
                epoch=int(is_leading),
            )
            await engine.beat(beat)
        for text in ("one", "two"):
            await engine.set_intents("a/1", {"10.0.0.2:1": text})
        await engine.intents()
        await engine.resign("a/1")
        await engine.leave("a/1")
        await engine.aclose()
        done = set()
        for method, path, _ in api.asked:
            rest = path.partition("/namespaces/")[2].split("/")[2:]
            done.add((*_group_and_kind(path), rest[0] if rest else "", VERBS[method]))
    assert done == allowed()


async def test_discovery_does_what_its_role_allows_and_the_role_nothing_more(
    tmp_path: Path,
) -> None:
    entry = EndpointEntry(host="x", port=0)
    groups = [
        PodGroup(entry=entry, namespace="serving", pool="llama"),
        PodGroup(entry=entry, namespace="serving", service="llama"),
    ]
    spec = {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8080}]}
    async with FakeApiServer(tmp_path) as api:
        api.put("inferencepools", {"metadata": {"name": "llama"}, "spec": spec})
        client = ApiServer(api.url, api.folder, PATIENCE_S, ROLE)
        seen = Publications()
        source = KubernetesEndpoints(seen, client)
        source.set(groups)
        objects = PoolObjects(ApiServer(api.url, api.folder, PATIENCE_S, ROLE), lambda: None)
        objects.set([("serving", "llama")])
        async with asyncio.timeout(PATIENCE_S):
            await seen.were_complete()
        await until(lambda: len(api.watches) == 5)
        await source.aclose()
        await objects.aclose()
        done = {(*_group_and_kind(path), "", "list") for _, path, _ in api.asked}
        assert {method for method, _, _ in api.asked} == {"GET"}
    done |= {(group, kind, name, "watch") for group, kind, name, _ in done}
    assert done == allowed("discovery-role.yaml")


def test_the_charts_schema_has_every_value_and_no_other() -> None:
    """`tests/e2e/test_chart.py` renders the chart, where Helm is built."""
    chart = DEPLOY / "helm/coxswain"
    values = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    assert values.keys() == schema["properties"].keys() - {"global"}
    for name, part in schema["properties"].items():
        if "properties" in part:
            assert not part["additionalProperties"], name
            assert values[name].keys() == part["properties"].keys(), name
