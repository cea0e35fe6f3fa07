"""No page leads nowhere."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, Page, page, pages


@pytest.mark.parametrize("one", pages(), ids=lambda one: str(one.path.relative_to(ROOT)))
def test_links_lead_somewhere(one: Page) -> None:
    """Every link to a file finds it, and every link to a heading finds that."""
    for link in one.links():
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (one.path.parent / file).resolve() if file else one.path
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in page(target).anchors(), f"{link}: there is no such heading"


def test_decisions_are_listed() -> None:
    """The list of decisions names every one of them."""
    folder = ROOT / "docs/decisions"
    links = page("docs/decisions/README.md").links()
    listed = {link for link in links if "/" not in link or link.startswith("replaced/")}
    assert listed == {str(file.relative_to(folder)) for file in folder.rglob("0*.md")}


def test_decisions_say_first_whether_they_hold() -> None:
    """One in replaced/ begins with what took its place, and none outside does."""
    folder = ROOT / "docs/decisions"
    for file in folder.rglob("0*.md"):
        _, second, *_ = file.read_text(encoding="utf-8").splitlines()
        is_moved = second.startswith(("Replaced by [", "Moved into [", "No longer holds"))
        assert is_moved == (file.parent != folder), file.name


def test_first_pages_are_short_and_linked_first() -> None:
    """Each reader's first page takes three minutes, and README names all of them."""
    folder = ROOT / "docs/start"
    first = {f"docs/start/{file.name}" for file in folder.glob("*.md")}
    assert first == {link for link in page("README.md").links() if link.startswith("docs/start/")}
    for path in first:
        assert len(page(path).text.split()) <= 600, path
