"""Each package with behaviour in core, stream, processes,
runners and scraper has a folder of tests of its
own, in the same place below `tests`, so that who changes one knows where its tests are."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
MIRRORED = ("extproc/core", "extproc/stream", "extproc/processes", "extproc/runners", "scraper")


def packages() -> set[Path]:
    """The folders that have a module with behaviour."""
    files = [path for folder in MIRRORED for path in (ROOT / folder).rglob("*.py")]
    return {path.parent for path in files if path.name != "__init__.py" and has_behaviour(path)}


def has_behaviour(path: Path) -> bool:
    """Whether it defines a function: a module of records alone has nothing to test."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in ast.walk(tree))


def mirrored(folder: Path) -> Path:
    """Where its tests are: `extproc` itself is no folder below `tests`."""
    below = folder.relative_to(ROOT)
    if below.parts[0] == "extproc":
        below = below.relative_to("extproc")
    return ROOT / "tests" / below


def test_each_package_has_its_own_tests() -> None:
    found = packages()
    assert len(found) > 20, "the folders have moved"
    missing = [folder for folder in found if not any(mirrored(folder).glob("test_*.py"))]
    assert not missing, sorted(str(mirrored(folder).relative_to(ROOT)) for folder in missing)
