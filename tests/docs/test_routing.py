"""docs/routing.md against the code, and the settings that all pages name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from extproc import header_names
from extproc.core.objective import Criticality
from extproc.runners.apis import SLOT_PATHS
from extproc.settings import Settings
from tests.docs.pages import ROOT, Page, page, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUTING: Final = page("docs/routing.md")
READ: Final = {
    *header_names.CONTROL_HEADERS,
    header_names.SESSION,
    header_names.TRACE_PARENT,
    header_names.MODEL,
    header_names.REQUEST_ID,
}
NO_SETTINGS: Final = {header_names.LB_NAMESPACE, header_names.SUBSET_NAMESPACE}
"""Other names with a dot."""


def test_headers() -> None:
    """Every header that clients may send has a row, with whether servers see it."""
    assert set(ROUTING.first_cells("## Headers")) == READ
    for row in ROUTING.text.partition("\n## Headers\n")[2].splitlines():
        for header in re.findall(r"`([a-z-]+)`", row.split("|")[1]) if "|" in row[:1] else ():
            is_taken_off = row.rstrip().endswith("| yes |")
            assert is_taken_off == (header in header_names.CONTROL_HEADERS), header


def test_slot_paths() -> None:
    """Every path that takes a slot is listed."""
    section = ROUTING.text.partition("## Which requests take a slot")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`(/[\w/]+)`", section))
    assert {path.removeprefix("/v1") for path in SLOT_PATHS} <= listed


def test_classes() -> None:
    assert ROUTING.first_cells("## Objectives") == [c.label for c in Criticality]


@pytest.mark.parametrize("one", pages(), ids=lambda one: str(one.path.relative_to(ROOT)))
def test_settings_exist(one: Page) -> None:
    """A setting that a page names, `section.key`, is one."""
    if one.path.is_relative_to(ROOT / "docs/decisions"):
        return  # they tell of their time
    known = set(_keys(Settings))
    sections = {key.partition(".")[0] for key in known if "." in key}
    for span in one.spans():
        found = re.fullmatch(r"([a-z_]+)\.([a-z_.]+)(?:[:=].*)?", span)
        if found and found[1] in sections and found[2] != "yaml" and span not in NO_SETTINGS:
            assert f"{found[1]}.{found[2]}" in known, span


def _keys(model: type[Settings], before: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield before + name
        annotation = field.annotation
        if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
            yield from _keys(annotation, f"{before}{name}.")
