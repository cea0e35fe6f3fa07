"""Code outside the core goes through the dispatcher's methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

INSIDE = {"state", "ledger"}
"""The dispatcher's own, and its view's; tests and rigs may look at them."""
READ_ONLY = {
    "fleet": {
        "far",
        "full_name_of",
        "get",
        "membership",
        "name_of",
        "sources_of",
        "specs_of",
        "version",
    },
    "queue": {"body_bytes"},
}


def breaches(tree: ast.AST) -> Iterator[str]:
    """The attributes that code outside the core must not use."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        of = node.value
        name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
        if name.endswith(("dispatcher", "view")) and node.attr in INSIDE:
            yield f"line {node.lineno}: {name}.{node.attr}"
        if name.lstrip("_") in READ_ONLY and isinstance(of, ast.Attribute):
            owner = of.value
            owned_by = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            allowed = READ_ONLY[name.lstrip("_")]
            if owned_by.endswith(("dispatcher", "view")) and node.attr not in allowed:
                yield f"line {node.lineno}: {owned_by}.{name}.{node.attr}"


def test_nobody_outside_reaches_into_the_dispatcher() -> None:
    """`fleet` and `queue` are read, and nothing else of its state is touched."""
    found = [
        f"{path.relative_to(ROOT)}: {breach}"
        for path in sorted((ROOT / "extproc").rglob("*.py"))
        if not path.is_relative_to(ROOT / "extproc/core")
        for breach in breaches(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_a_breach_is_found() -> None:
    """Also behind `self`, and through the fleet."""
    for line in (
        "dispatcher.state",
        "self._dispatcher.ledger",
        "self._dispatcher.view.state",
        "dispatcher.fleet.drop(a)",
        "dispatcher.view.fleet.drop(a)",
    ):
        assert list(breaches(ast.parse(line)))
    for line in ("dispatcher.fleet.get(a)", "self._dispatcher.queue.body_bytes", "self.state"):
        assert not list(breaches(ast.parse(line)))
