"""Claims about extproc/cli/durations.py."""

from __future__ import annotations

import pytest

from extproc.cli.durations import parse_duration, positive_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("90", 90.0),
        ("1.5", 1.5),
        (2.5, 2.5),
        ("90s", 90.0),
        ("2m", 120.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1D", 86400.0),
        (" 2m ", 120.0),
    ],
)
def test_what_people_type(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "2x", "2m!", "-1", "inf", "nan", "2 m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration; write 90s, 2m or 1h30m"):
        parse_duration(text)


def test_nothing_is_no_time_to_wait() -> None:
    assert positive_duration("1s") == 1.0
    with pytest.raises(ValueError, match="above 0"):
        positive_duration("0s")
