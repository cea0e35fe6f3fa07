"""The pages use the words of docs/glossary.md: one word for one thing."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from tests.docs.pages import ROOT, Page, page, pages

RETIRED: Final = {
    r"(in|the) line": "queue",
    r"lanes?": "queue",
    r"looks? at": "scrape",
    r"a look": "a scrape",
    r"strangers?": "foreign",
    r"newcomers?": "arrival",
    r"mend(ed|s)?": "fix",
    r"alarms?": "alert",
    r"promis(e|es|ed)": "SLO",
    r"turned away|sent away": "rejected",
    r"refusals?": "rejection",
    r"authorities": "CA",
    r"whoever|so many|anew": "plain English",
    r"told": "reported, sent or configured",
}
"""Patterns of words, and what to write in their place."""

GENERATED: Final = {"settings.md", "commands.md"}
FROM_THE_CODE: Final = re.compile(r"^\| `coxswain_.*$", re.MULTILINE)
"""Rows of docs/metrics.md."""
NAMES: Final = re.compile(r"`[^`\n]+`|\]\([^)\s]+\)")
"""Code, and the targets of links."""


def _prose() -> list[Page]:
    decisions = ROOT / "docs/decisions"
    return [
        one for one in pages() if one.path.parent != decisions and one.path.name not in GENERATED
    ]


@pytest.mark.parametrize("one", _prose(), ids=lambda one: str(one.path.relative_to(ROOT)))
def test_no_retired_words(one: Page) -> None:
    """Names in code and output of commands may differ until the code is renamed."""
    text = NAMES.sub("", FROM_THE_CODE.sub("", one.prose))
    for pattern, instead in RETIRED.items():
        found = re.search(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
        assert found is None, f"{one.path.name}: {found[0]!r}, write {instead}"


def test_the_glossary_is_in_order() -> None:
    """Both tables are alphabetical, and no term comes twice."""
    for section in page("docs/glossary.md").text.split("\n## ")[1:]:
        terms = re.findall(r"^\| ([^|]+) \|", section.partition("|---|---|\n")[2], re.MULTILINE)
        plain = [term.replace("`", "").lower() for term in terms]
        assert plain == sorted(set(plain))


def test_names_of_the_glossary_exist() -> None:
    """Each name in the second table is a class or a type of the code."""
    defined: set[str] = set()
    for file in (*ROOT.glob("extproc/**/*.py"), *ROOT.glob("scraper/**/*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            match node:
                case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                    defined.add(name)
                case _:
                    pass
    section = page("docs/glossary.md").text.partition("\n## Names in the code\n")[2]
    rows = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    assert rows
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} <= defined
