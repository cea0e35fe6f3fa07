"""Each module with behaviour in core, stream and scraper has a test file of its own, in
the same place below `tests`, so that who changes one knows which tests are about it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
MIRRORED = ("extproc/core", "extproc/stream", "scraper")


def modules() -> list[Path]:
    return [path for folder in MIRRORED for path in sorted((ROOT / folder).rglob("*.py"))]


def has_behaviour(path: Path) -> bool:
    """Whether it defines a function: a module of records alone has nothing to test."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in ast.walk(tree))


def mirrored(path: Path) -> Path:
    """Where its tests are: `extproc` itself is no folder below `tests`."""
    below = path.relative_to(ROOT)
    if below.parts[0] == "extproc":
        below = below.relative_to("extproc")
    return ROOT / "tests" / below.parent / f"test_{path.name}"


def test_each_module_has_its_own_test_file() -> None:
    found = [path for path in modules() if path.name != "__init__.py" and has_behaviour(path)]
    assert len(found) > 100, "the folders have moved"
    missing = [mirrored(path) for path in found if not mirrored(path).is_file()]
    assert not missing, [str(path.relative_to(ROOT)) for path in missing]
