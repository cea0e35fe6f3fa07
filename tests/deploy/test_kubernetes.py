"""The role in deploy/kubernetes allows what the engine does, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from extproc.processes.cluster.engine import Beat, Member
from extproc.processes.cluster.kubernetes import KubernetesEngine
from tests.deploy.stack_files import DEPLOY
from tests.fakes.api_server import FakeApiServer

VERBS = {"GET": "get", "POST": "create", "PUT": "update"}


def manifests() -> dict[str, dict[str, Any]]:
    text = (DEPLOY / "kubernetes/cluster-role.yaml").read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def allowed() -> set[tuple[str, str, str, str]]:
    """API group, kind, name and verb of each thing that the role allows."""
    return {
        (group, kind, name, verb)
        for rule in manifests()["Role"]["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_the_role_is_bound_to_the_service_account() -> None:
    found = manifests()
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    [subject] = found["RoleBinding"]["subjects"]
    assert subject["name"] == found["ServiceAccount"]["metadata"]["name"]


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
            parts = path.strip("/").split("/")
            group = parts[1] if parts[0] == "apis" else ""
            [kind, *rest] = parts[parts.index("namespaces") + 2 :]
            done.add((group, kind, rest[0] if rest else "", VERBS[method]))
    assert done == allowed()
