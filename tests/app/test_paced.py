"""Claims about extproc/app/paced.py."""

from __future__ import annotations

import asyncio
import logging

import pytest

from extproc.app.paced import PacedWork, pause_s


def test_work_of_a_small_fleet_keeps_its_interval() -> None:
    assert pause_s(1.0, 0.0) == pause_s(1.0, 0.04) == 1.0


def test_work_of_a_large_fleet_takes_a_bounded_share() -> None:
    """Twice the time is half as often."""
    assert pause_s(1.0, 0.1) == pytest.approx(2.0)
    assert pause_s(1.0, 0.2) == pytest.approx(4.0)


async def test_it_goes_on_after_an_error_until_it_is_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done, times = asyncio.Event(), 0

    def work() -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise RuntimeError("a bug")
        done.set()

    paced = PacedWork("counting", work, 0.001, logging.getLogger("coxswain.test"))
    assert not paced.is_running
    paced.start()
    await asyncio.wait_for(done.wait(), 60)
    paced.stop()
    paced.stop()
    assert not paced.is_running
    assert "counting failed" in caplog.text
