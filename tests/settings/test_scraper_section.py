"""Claims about extproc/settings/scraper_section.py: every number arrives where it counts."""

from __future__ import annotations

import pytest

from extproc.settings.scraper_section import ScraperSettings


def test_scrapes() -> None:
    """Each number is its own: no two of them are mixed up."""
    options = ScraperSettings(
        fast_interval_s=0.3,
        slow_interval_s=3,
        jitter=0.2,
        connect_timeout_s=1.1,
        read_timeout_s=1.2,
        slots_read_timeout_s=1.3,
        write_timeout_s=1.4,
        pool_timeout_s=1.5,
        slow_after_s=1.6,
        max_per_s=700,
    ).for_scraper(loads_models=False)
    cadence, timeouts = options.cadence, options.timeouts
    assert (cadence.fast_s, cadence.slow_s, cadence.jitter) == (0.3, 3, 0.2)
    assert (timeouts.connect_s, timeouts.read_s, timeouts.slots_read_s) == (1.1, 1.2, 1.3)
    assert (timeouts.write_s, timeouts.pool_s, options.slow_after_s) == (1.4, 1.5, 1.6)
    assert options.pace.max_per_s == 700


@pytest.mark.parametrize("loads_models", [True, False])
def test_whether_models_are_loaded_on_routers_is_said_by_another_section(
    loads_models: bool,
) -> None:
    assert ScraperSettings().for_scraper(loads_models=loads_models).loads_models is loads_models
