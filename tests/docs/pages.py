"""The project's Markdown pages, read as far as the tests need: links, code, tables, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language and what is in it."""

    language: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One Markdown file."""

    path: Path
    text: str

    @property
    def prose(self) -> str:
        """The page without its fenced blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self) -> Iterator[Block]:
        for _, language, text in _FENCE.findall(self.text):
            yield Block(language=language, text=text)

    def spans(self) -> list[str]:
        """What stands between single backticks."""
        return [span.replace("\\|", "|") for span in _SPAN.findall(self.prose)]

    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    def anchors(self) -> set[str]:
        """The names by which its headings can be linked."""
        return {_anchor(heading) for heading in _HEADING.findall(self.prose)}

    def first_cells(self, heading: str) -> list[str]:
        """The code in the first cell of each row of the first table below a heading."""
        below = self.text.partition(f"\n{heading}\n")[2]
        assert below, f"{self.path.name} has no {heading!r}"
        rows = below.partition("\n|---")[2].partition("\n\n")[0].splitlines()[1:]
        return [span for row in rows for span in _SPAN.findall(row.split("|")[1])]


def pages() -> list[Page]:
    """Every Markdown page that people are meant to read."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return [page(path) for path in sorted(found)]


def page(path: Path | str) -> Page:
    full = ROOT / path
    return Page(path=full, text=full.read_text(encoding="utf-8"))


def _anchor(heading: str) -> str:
    plain = re.sub(r"[`*_\[\]]|\(.*?\)", "", heading) if "](" in heading else heading
    kept = re.sub(r"[^\w\- ]", "", plain.replace("`", ""))
    return kept.strip().lower().replace(" ", "-")
