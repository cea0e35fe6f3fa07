"""Claims about extproc/cli/durations.py."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from extproc.cli.durations import duration, positive_duration, update_interval
from extproc.cli.root import root


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
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "2x", "2m!", "-1", "inf", "nan", "2 m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no duration; write 90s, 2m or 1h30m"):
        duration(text)


def test_nothing_is_no_time_to_wait() -> None:
    assert positive_duration("1s") == 1.0
    with pytest.raises(typer.BadParameter, match="above 0"):
        positive_duration("0s")


def test_an_update_needs_some_time() -> None:
    assert update_interval("200ms") == 0.2
    with pytest.raises(typer.BadParameter, match=r"at least 0\.2s"):
        update_interval("0.1")


def test_a_mistake_is_told_in_our_words() -> None:
    """Without the words of the library that calls the parser."""
    done = CliRunner().invoke(root, ["top", "--interval", "soon"])
    assert done.exit_code == 2
    assert "'soon' is no duration; write 90s, 2m or 1h30m" in done.output
    assert "Value error" not in done.output
