"""Claims about extproc/app/version.py."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from extproc.app import version


def test_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", {"coxswain-llm": "1.2.3"}.__getitem__)
    assert version.own_version() == "1.2.3"


def test_a_tree_that_was_not_installed_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs all the same."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", missing)
    assert version.own_version() == "unknown"
