"""Claims about extproc/app/paced.py."""

from __future__ import annotations

import pytest

from extproc.app.paced import pause_s


def test_work_of_a_small_fleet_keeps_its_interval() -> None:
    assert pause_s(1.0, 0.0) == pause_s(1.0, 0.04) == 1.0


def test_work_of_a_large_fleet_takes_a_bounded_share() -> None:
    """Twice the time is half as often."""
    assert pause_s(1.0, 0.1) == pytest.approx(2.0)
    assert pause_s(1.0, 0.2) == pytest.approx(4.0)
