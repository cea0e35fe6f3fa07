"""The pages for contributors name files, functions and classes that exist."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from tests.docs.pages import ROOT, Page, page

PAGES: Final = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/development.md")
_PATH: Final = re.compile(
    r"(?:extproc|scraper|tests|rigs|bench|tools|deploy|envoy|proto|docs)/[\w./-]*"
)
_NAMED: Final = re.compile(r"\| `([\w/]+\.py)`: (.+) \|$", re.MULTILINE)
DEVELOPMENT: Final = page("docs/development.md")


@pytest.mark.parametrize("one", [page(path) for path in PAGES], ids=PAGES)
def test_paths_exist(one: Page) -> None:
    """A file or folder of this repository that a page names is there."""
    for span in one.spans():
        if _PATH.fullmatch(span):
            assert (ROOT / span).exists(), f"{one.path.name} names {span}"


@pytest.mark.parametrize(("file", "names"), _NAMED.findall(DEVELOPMENT.text))
def test_functions_exist(file: str, names: str) -> None:
    """What follows a file in a table of docs/development.md is defined in it."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    assert set(re.findall(r"`(\w+)`", names)) <= defined
