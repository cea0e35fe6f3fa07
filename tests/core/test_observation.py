"""Claims about extproc/core/observation.py."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.observation import (
    MAX_SLOTS,
    Issue,
    ModelReading,
    Observation,
    ObservationError,
    ScrapeStatus,
)

ADDRESS = Address("10.0.0.1", 8080)


def observation(**facts: Any) -> Observation:
    defaults: dict[str, Any] = {"began_at": 1.0, "answered_at": 2.0, "status": ScrapeStatus.READY}
    return Observation(address=ADDRESS, **(defaults | facts))


@pytest.mark.parametrize(
    "facts",
    [
        {"answered_at": 0.9},
        {"answered_at": float("nan")},
        {"slots": -1},
        {"slots": MAX_SLOTS + 1},
        {"slots": 1_000_000},
        {"busy_slots": -1},
        {"busy_slots": 1_000_000},
        {"models": (ModelReading(name="m", busy_slots=1_000_000),)},
        {"models": (ModelReading(name="m", slots=-1),)},
    ],
)
def test_impossible_numbers_are_rejected(facts: dict[str, Any]) -> None:
    """They never reach the ledger; the error names the server."""
    with pytest.raises(ObservationError, match=r"10\.0\.0\.1:8080"):
        observation(**facts)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"answered_at": 1.0},
        {"slots": 0, "busy_slots": 0},
        {"slots": MAX_SLOTS, "busy_slots": MAX_SLOTS},
        {"slots": None, "busy_slots": 3},
    ],
)
def test_possible_numbers_are_accepted(facts: dict[str, Any]) -> None:
    """Missing numbers are valid, and so is a scrape without any duration."""
    assert observation(**facts).address == ADDRESS


def test_an_issue_is_one_line_of_the_log() -> None:
    issue = Issue(code="slow-slots", message="no answer", remedy="wait")
    assert str(issue) == "slow-slots: no answer; wait"
