"""docs/metrics.md, the dashboard and the alerts say only what the code can tell."""

from __future__ import annotations

import re

import pytest

from extproc.telemetry.definitions import Family, Kind
from tests.deploy.stack_files import ROOT, dashboard, queries
from tests.telemetry.families import FAMILIES

PAGE = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(coxswain_\w+)` \| (\w+) \| (.*?) \| (.+) \|$", re.MULTILINE)
ALWAYS = {"le"}


def series() -> dict[str, Family]:
    """Every name that a query may use."""
    names = {}
    for family in FAMILIES:
        is_histogram = family.kind is Kind.HISTOGRAM
        for suffix in ("_bucket", "_sum", "_count") if is_histogram else ("",):
            names[family.name + suffix] = family
    return names


def test_the_page_lists_every_metric_as_it_is() -> None:
    """Name, kind, labels and meaning, in the order of the code; nothing more, nothing less."""
    rows = [(name, kind, labels, text) for name, kind, labels, text in ROW.findall(PAGE)]
    wanted = [
        (one.name, one.kind.value, ", ".join(f"`{name}`" for name in one.labels), one.help)
        for one in FAMILIES
    ]
    assert rows == wanted


@pytest.mark.parametrize("query", queries())
def test_queries_name_series_that_exist(query: str) -> None:
    """Each series of a query is one of ours, and each label one that it has."""
    known = series()
    used = re.findall(r"\b(coxswain_\w+|up)\b(?:\{([^}]*)\})?", query)
    assert used, query
    for name, matchers in used:
        if name == "up":
            continue
        assert name in known, f"{name} is no metric of ours"
        labels = set(re.findall(r"(\w+)\s*[=!]", matchers))
        assert labels <= set(known[name].labels), f"{name} has no label {labels}"
    grouped = {
        label.strip()
        for group in re.findall(r"by \(([^)]+)\)", query)
        for label in group.split(",")
    }
    has = set().union(*(known[name].labels for name, _ in used if name in known))
    assert grouped <= has | ALWAYS, query


def test_legends_use_labels_that_exist() -> None:
    """A legend with a label that no series has would stay empty."""
    labels = {label for family in FAMILIES for label in family.labels}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


def test_panels_do_not_overlap() -> None:
    """Each has its own place and its own number."""
    cells: set[tuple[int, int]] = set()
    panels = dashboard()["panels"]
    for panel in panels:
        place = panel["gridPos"]
        taken = {
            (place["x"] + column, place["y"] + row)
            for column in range(place["w"])
            for row in range(place["h"])
        }
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= taken
    assert len({panel["id"] for panel in panels}) == len(panels)
