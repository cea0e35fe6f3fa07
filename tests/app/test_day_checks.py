"""Claims about extproc/app/day_checks.py."""

from __future__ import annotations

import asyncio

import pytest

from extproc.app import day_checks
from extproc.app.day_checks import DayChecks
from tests.fakes.patience import PATIENCE_S


class Faulty(DayChecks):
    """Its first check fails."""

    def __init__(self) -> None:
        super().__init__("counting")
        self.checks = 0
        self.is_done = asyncio.Event()

    async def check(self) -> None:
        self.checks += 1
        if self.checks == 1:
            raise ValueError
        self.is_done.set()

    def problems(self) -> tuple[str, ...]:
        return ()


async def test_a_check_that_fails_is_logged_and_the_next_one_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(day_checks, "CHECK_S", 0.0)
    subject = Faulty()
    subject.start()
    async with asyncio.timeout(PATIENCE_S):
        await subject.is_done.wait()
    await subject.aclose()
    assert "counting failed; it goes on" in caplog.text
