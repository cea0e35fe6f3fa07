"""What all tests of the running picker's parts take for granted."""

from __future__ import annotations

import pytest

from extproc.app.security import exposure


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a picker of their own, with tokens in the environment."""
    monkeypatch.delenv(exposure.ADMIN_TOKEN, raising=False)
    monkeypatch.delenv(exposure.AGENTS_TOKEN, raising=False)
