"""Claims about extproc/runners/issues.py: what operators read about their servers."""

from __future__ import annotations

import pytest

from extproc.core.observation import Issue
from extproc.runners import issues

ALL = (
    issues.slots_disabled(),
    issues.unauthorized(has_key=True),
    issues.slow_slots(2.4),
    issues.slots_override_too_large(8, 4),
    issues.model_failed(("a",)),
    issues.unreachable("the connection was refused"),
    issues.no_answer("no answer within 3 s"),
    issues.bad_answer("no JSON"),
    issues.internal_error("KeyError"),
    issues.no_model_loaded(),
    issues.sleeps_until_called(),
    issues.metrics_disabled(),
)


@pytest.mark.parametrize("issue", ALL, ids=lambda issue: issue.code)
def test_every_issue_says_what_is_wrong_and_what_to_do(issue: Issue) -> None:
    assert issue.message and issue.remedy
    assert not issue.message.endswith(".") and not issue.remedy.endswith(".")


def test_codes_are_distinct() -> None:
    """Alerts and the log of issues find one by its code."""
    assert len({issue.code for issue in ALL}) == len(ALL)


def test_a_missing_and_a_wrong_key_are_one_issue_in_two_words() -> None:
    """It begins and ends once in the log while the operator corrects the key."""
    missing, wrong = issues.unauthorized(has_key=False), issues.unauthorized(has_key=True)
    assert missing.code == wrong.code and missing.message != wrong.message


def test_numbers_are_named() -> None:
    assert "2 s" in issues.slow_slots(2.4).message
    too_many = issues.slots_override_too_large(8, 4).message
    assert "8 slots" in too_many and too_many.endswith("has 4")


def test_of_many_failed_models_the_first_are_named() -> None:
    """A router may list a thousand."""
    assert issues.model_failed(("a", "b", "c")).message.endswith("a, b, c")
    assert issues.model_failed(("a", "b", "c", "d")).message.endswith("a, b, c and more")
