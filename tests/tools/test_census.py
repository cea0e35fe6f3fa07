"""Claims about tools/census.py, on a small tree of which every figure is counted by hand."""

from __future__ import annotations

from pathlib import Path

from tools.census import circles, figures, read, report

ONE = """from typing import Any

from extproc.core import two


def first(state: State, value: Any) -> Any:
    import json

    return json.dumps(state.queue) + two.second(state.fleet)
"""
TWO = """from extproc.core import one


class Two:
    def second(self) -> object:
        return self._state.ledger, one.first
"""


def tree(root: Path) -> Path:
    for name, text in {"one": ONE, "two": TWO, "long": "x = 1\n" * 50}.items():
        file = root / f"extproc/core/{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    generated = root / "extproc/pb/three.py"
    generated.parent.mkdir()
    generated.write_text("x = 1\n", encoding="utf-8")
    return root


def test_figures(tmp_path: Path) -> None:
    """Generated code is left out."""
    found = figures(read(tree(tmp_path)))
    assert found == {
        "files": 3,
        "lines": 65,
        "lines per file": 21,
        "files under 40 lines": 2,
        "circles": 1,
        "modules that take the whole State": 1,
        "calls to State": 3,
        "late imports": 1,
        "late imports outside the command line": 1,
        "Any": 2,
    }


def test_a_report_compares_with_before_and_names_the_circles(tmp_path: Path) -> None:
    now = read(tree(tmp_path))
    lines = list(report(now, now[:1]))
    assert lines[0].split() == ["1", "3", "files"]
    assert lines[-1] == "extproc.core.one - extproc.core.two"
    assert next(report(now)).split() == ["3", "files"]


def test_no_modules_of_the_product_import_each_other() -> None:
    """Not even for types alone."""
    modules = read(Path(__file__).parents[2])
    assert len(modules) > 500, "the packages have moved"
    assert circles(modules) == []
