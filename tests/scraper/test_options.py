"""Claims about scraper/options.py."""

from __future__ import annotations

import pytest

from scraper.options import ScraperOptions


def test_the_defaults_are_valid() -> None:
    assert ScraperOptions().scrape_gap_s < ScraperOptions().slow_after_s


@pytest.mark.parametrize(
    ("name", "value"), [("slow_after_s", 0.0), ("scrape_gap_s", -1.0), ("props_every_scrapes", 0)]
)
def test_a_pace_that_never_moves_is_refused(name: str, value: float) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=name):
        ScraperOptions(**{name: value})  # type: ignore[arg-type]
