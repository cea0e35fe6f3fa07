"""Pages, code, settings and metrics use the words of docs/glossary.md: one word for one thing."""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from extproc.settings import Settings
from tests.docs.pages import ROOT, Page, page, pages
from tests.telemetry.families import FAMILIES

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

RETIRED_NAMES: Final = {
    r"looks?|looked|looking|lookouts?|poke[ds]?": "scrape, probe",
    r"sights?|sighted|gaze": "status, snapshot",
    r"restless": "high priority",
    r"lanes?|desk|keeping": "queue, slot allocator, reservation",
    r"strangers?": "foreign",
    r"newcomers?": "arrival",
    r"mend(ed|s)?": "fix",
    r"alarms?": "alert, timer",
    r"promis(e|es|ed)": "slo",
    r"refusals?": "rejection",
    r"authorities": "ca",
    r"rosters?": "registry",
    r"nominations?": "discovered endpoint",
    r"farewell": "deregistration",
    r"intake": "resolver",
    r"switchboard|surroundings": "dependencies",
    r"whoever|anew": "plain English",
    r"told|tells?": "reported, sent, record",
}
"""Patterns of the words in an identifier, and what to write in their place."""

IN_CODE: Final = {
    **{pattern: instead for pattern, instead in RETIRED.items() if "the" not in pattern},
    r"in line": "queued",
    r"tells?": "reports, says",
    r"waiting rooms?|lookouts?|rosters?|sights?": "the name in the glossary",
}
"""Patterns for comments, docstrings and texts. In code \"the line\" is that of a file."""

ORDINARY: Final = frozenset({"PUSH_PROMISE", "look_up", "look_up_host", "_look_up_host"})
"""Names with a word in another sense: a name is looked up in DNS; RFC 9113 has a frame."""

OTHER_TEXTS: Final = {"extproc/demo/vocabulary.py", "extproc/pb/"}
"""The simulator's nautical words, and generated code (`proto/` is checked instead)."""

GENERATED: Final = {"settings.md", "commands.md"}
FROM_THE_CODE: Final = re.compile(r"^\| `coxswain_.*$", re.MULTILINE)
"""Rows of docs/metrics.md."""
NAMES: Final = re.compile(r"`[^`\n]+`|\]\([^)\s]+\)")
"""Code, and the targets of links."""


def _prose() -> list[Page]:
    return [one for one in pages() if one.path.name not in GENERATED]


@pytest.mark.parametrize("one", _prose(), ids=lambda one: str(one.path.relative_to(ROOT)))
def test_no_retired_words(one: Page) -> None:
    """Code and the targets of links are left out: they are checked where they are defined."""
    text = NAMES.sub("", FROM_THE_CODE.sub("", one.prose))
    for pattern, instead in RETIRED.items():
        found = re.search(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
        assert found is None, f"{one.path.name}: {found[0]!r}, write {instead}"


@pytest.mark.parametrize("folder", ["bench", "extproc", "rigs", "scraper", "tools"])
def test_no_retired_words_in_code(folder: str) -> None:
    """Neither in identifiers nor in comments, docstrings and other texts."""
    found = []
    for file in sorted((ROOT / folder).rglob("*.py")):
        name = str(file.relative_to(ROOT))
        if not name.startswith(tuple(OTHER_TEXTS)):
            found += [f"{name}:{problem}" for problem in _in_python(file)]
    assert not found, "\n".join(found)


def test_no_retired_words_in_other_sources() -> None:
    """Neither in the messages, the dashboard's script, the alerts nor Grafana's dashboard."""
    files = [
        *(ROOT / "proto/coxswain").rglob("*.proto"),
        *(ROOT / "extproc/status").glob("dashboard.*[!y]"),
        *(ROOT / "deploy").rglob("*.y*ml"),
        *(ROOT / "deploy").rglob("*.json"),
    ]
    assert len(files) > 8
    for file in files:
        text = file.read_text(encoding="utf-8")
        for name in set(re.findall(r"[A-Za-z_]\w+", text)):
            assert not _in_name(name), f"{file.name}: {name}"
        assert not list(_in_text(text)), f"{file.name}: {list(_in_text(text))}"


def test_no_retired_words_in_settings_and_metrics() -> None:
    """Their keys, names and labels are identifiers."""
    schema = json.dumps(Settings.model_json_schema())
    names = {
        *re.findall(r'"(\w+)": \{', schema),
        *(family.name for family in FAMILIES),
        *(label for family in FAMILIES for label in family.labels),
    }
    assert {"queue", "max_body_bytes", "coxswain_slots", "criticality"} <= names
    assert [name for name in sorted(names) if _in_name(name) or name == "class"] == []


def _in_python(file: Path) -> Iterator[str]:
    lines = io.StringIO(file.read_text(encoding="utf-8"))
    for token in tokenize.generate_tokens(lines.readline):
        problems: Iterable[str] = ()
        if token.type == tokenize.NAME:
            problems = _in_name(token.string)
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            problems = _in_text(token.string)
        for problem in problems:
            yield f"{token.start[0]}: {problem}"


@cache
def _in_name(name: str) -> tuple[str, ...]:
    if name in ORDINARY:
        return ()
    words = [word.lower() for word in re.split(r"_|(?<=[a-z])(?=[A-Z])", name) if word]
    return tuple(
        f"{name}, write {instead}"
        for pattern, instead in RETIRED_NAMES.items()
        if any(re.fullmatch(pattern, word) for word in words)
    )


def _in_text(text: str) -> Iterator[str]:
    for pattern, instead in IN_CODE.items():
        for found in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
            yield f"{found[0]!r}, write {instead}"


def test_the_glossary_is_in_order() -> None:
    """It is alphabetical, and no term comes twice."""
    table = page("docs/glossary.md").text.partition("|---|---|\n")[2]
    terms = [term.lower() for term in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)]
    assert len(terms) > 50
    assert terms == sorted(set(terms))
