"""docs/operations.md knows everything that can go wrong, and nothing that cannot."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from extproc.core.rejection import Reason
from extproc.envoy_config import names
from extproc.stream.envoy import codec
from tests.docs.pages import ROOT, page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPERATIONS: Final = page("docs/operations.md")


def test_issues() -> None:
    """Every code of an issue in the sources has a row, and every row is such a code."""
    sources = [*ROOT.glob("scraper/**/*.py"), *ROOT.glob("extproc/**/*.py")]
    codes = {code for file in sources if "pb" not in file.parts for code in _codes(file)}
    assert len(codes) > 5
    assert set(OPERATIONS.first_cells("## Issues")) == codes


def _codes(file: Path) -> Iterator[str]:
    """The `code` of each `Issue(...)` in a file, a constant of the file included."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "Issue"):
            continue
        for keyword in node.keywords:
            if keyword.arg != "code":
                continue
            match keyword.value:
                case ast.Constant(value=str(code)):
                    yield code
                case ast.Name(id=constant):
                    yield str(constants[constant])
                case other if "issue.code" in ast.unparse(other):
                    pass  # handed on, from an agent whose scraper is ours, too
                case other:
                    raise AssertionError(f"{file}: {ast.unparse(other)} is no plain code")


ENVOYS_OWN: Final = (
    names.BATCHES_LOST,
    names.MALFORMED_HTTP,
    names.PICKER_LOST,
    names.SERVER_LOST,
    names.TOO_MANY_HEADERS,
    names.UNSUPPORTED_HTTP,
)
"""Reasons that Envoy gives by itself, as it is configured."""


def test_rejections() -> None:
    """Every reason has a row with its status, and every row is a reason."""
    told = OPERATIONS.first_cells("## Rejections")
    assert sorted(told) == sorted([*(reason.value for reason in Reason), *ENVOYS_OWN])
    for reason in Reason:
        status = codec.rejection(reason, 1.0, "text").immediate_response.status.code
        assert f"| `{reason.value}` | {status} |" in OPERATIONS.text


def test_reasons_elsewhere() -> None:
    """README lists the same reasons."""
    readme = page("README.md").text
    for reason in (*(reason.value for reason in Reason), *ENVOYS_OWN):
        assert f"`{reason}`" in readme, f"README does not know {reason}"
