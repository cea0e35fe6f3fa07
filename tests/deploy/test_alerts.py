"""The alerts speak when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from extproc.telemetry.definitions import Kind
from tests.deploy.stack_files import DEPLOY, ROOT, yaml_of
from tests.telemetry.families import FAMILIES

LABELS = {
    family.name + suffix: frozenset(family.labels)
    for family in FAMILIES
    for suffix in (("_bucket", "_sum", "_count") if family.kind is Kind.HISTOGRAM else ("",))
}
SCRAPED = frozenset({"job", "instance"})
"""What Prometheus adds to every series that it scrapes."""
UNIT_TESTS = Path(__file__).with_name("alerts_unit_tests.yml")


def expressions() -> dict[str, str]:
    groups = yaml_of(DEPLOY / "prometheus/alerts.yml")["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def labels_of(side: str) -> frozenset[str]:
    """The labels that this side of a comparison has."""
    (name,) = set(re.findall(r"coxswain_\w+", side))
    before = re.match(r"\s*(?:[\d.]+ \* )?sum(?: (by|without) \((.*?)\))? ?\(", side)
    if before is None:
        return LABELS[name] | SCRAPED
    named = frozenset(re.findall(r"\w+", before[2] or ""))
    return (LABELS[name] | SCRAPED) - named if before[1] == "without" else named


@pytest.mark.parametrize("expression", expressions())
def test_what_is_compared_has_the_same_labels(expression: str) -> None:
    """Prometheus finds no pairs in series with different labels: such an alert never speaks."""
    sides = re.split(r"[<>=]=?\s(?![^{]*\})", expressions()[expression])
    series = [labels_of(side) for side in sides if "coxswain_" in side]
    assert len(set(series)) <= 1, series


def test_every_alert_is_tried() -> None:
    """promtool's tests hold each alert in trouble and in health."""
    for group in yaml.safe_load(UNIT_TESTS.read_text(encoding="utf-8"))["tests"]:
        assert {one["alertname"] for one in group["alert_rule_test"]} == expressions().keys()


def test_promtool_hears_them() -> None:
    """Where Prometheus' own tool is installed, each alert speaks in trouble and in health none."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    command = [promtool, "test", "rules", str(UNIT_TESTS)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_every_alert_is_explained() -> None:
    """What each means and what to do stands in docs/operations.md, and nothing of others."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    section = page.partition("## Alerts\n")[2].partition("\n## ")[0]
    explained = re.findall(r"^### (Coxswain\w+)\n[^\n#]+\n\n[^\n#]+$", section, re.MULTILINE)
    assert explained == list(expressions())


def test_every_alert_says_how_bad_it_is_and_where_to_read_on() -> None:
    """The page's heading for that alert, in this project."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        home = tomllib.load(file)["project"]["urls"]["Source"]
    for group in yaml_of(DEPLOY / "prometheus/alerts.yml")["groups"]:
        for rule in group["rules"]:
            assert rule["labels"] == {"severity": rule["labels"]["severity"]}
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            anchor = rule["alert"].lower()
            page = f"{home}/blob/main/docs/operations.md#{anchor}"
            assert rule["annotations"]["runbook_url"] == page
