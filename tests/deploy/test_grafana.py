"""Claims about Grafana's dashboard: what Grafana reads, and what people import by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.stack_files import DEPLOY, dashboard
from tests.fakes.package_index import need_index
from tests.telemetry.families import FAMILIES

FILE = DEPLOY / "grafana/dashboards/coxswain.json"
LIBRARY = "grafana-foundation-sdk==1769699998!10.1.0"
"""Grafana's own library with the types of its dashboards. It ignores what it does not know."""
WRITE_AGAIN = """
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
register_default_plugins()
print(JSONEncoder().encode(Dashboard.from_json(json.load(open(sys.argv[1])))))
"""
ABOUT_THE_IMPORT = {"__inputs", "__elements", "__requires"}
"""Keys that the dialog for imports reads, and that are no part of a dashboard."""
TREE = dashboard()
PANELS: list[dict[str, Any]] = TREE["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]


@pytest.mark.e2e
def test_grafanas_own_library_reads_all_of_it() -> None:
    """Each field of the dashboard is one that Grafana knows, with a value that it keeps."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("no uv")
    need_index(uv)
    command = [uv, "run", "--no-project", "--quiet", "--python", sys.executable]
    done = subprocess.run(
        [*command, "--with", LIBRARY, "python", "-c", WRITE_AGAIN, FILE],
        capture_output=True,
        check=True,
    )
    ours = {key: value for key, value in TREE.items() if key not in ABOUT_THE_IMPORT}
    assert list(_lost(ours, json.loads(done.stdout))) == []


def _lost(ours: Any, theirs: Any, path: str = "") -> Any:
    """Where the second lacks what the first has."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from _lost(value, theirs.get(key), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _lost(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield path


def test_the_source_is_a_choice() -> None:
    """Any Prometheus: the dialog for imports asks for it, and the dashboard has a menu."""
    [variable] = TREE["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    [asked] = TREE["__inputs"]
    assert (asked["type"], asked["pluginId"]) == ("datasource", "prometheus")
    assert variable["current"]["value"] == f"${{{asked['name']}}}"
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    for panel in GRAPHS:
        assert panel["datasource"] == source
        assert [target["datasource"] for target in panel["targets"]] == [source] * len(
            panel["targets"]
        )


def test_what_it_requires_is_what_it_uses() -> None:
    required = {one["id"] for one in TREE["__requires"] if one["type"] == "panel"}
    assert required == {panel["type"] for panel in GRAPHS}


def test_usage_models_and_bypasses_have_panels() -> None:
    shown = set(
        re.findall(
            r"coxswain_\w+", " ".join(each["expr"] for panel in GRAPHS for each in panel["targets"])
        )
    )
    for prefix in ("coxswain_usage_", "coxswain_model_", "coxswain_machine_model_"):
        assert {one.name for one in FAMILIES if one.name.startswith(prefix)} <= shown
    assert {"coxswain_bypassed_requests_total", "coxswain_envoy_ext_proc_failures_total"} <= shown
