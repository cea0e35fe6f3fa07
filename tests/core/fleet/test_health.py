"""Claims about extproc/core/fleet/health.py: the states of an endpoint, as scrapes show it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec
from extproc.core.fleet.health import SERVING, Health, HealthOptions
from extproc.core.observation import Issue, Observation, ScrapeStatus

HERE = Address("10.0.0.1", 8080)
OPTIONS = HealthOptions()

statuses = st.sampled_from(ScrapeStatus)


def endpoint(*statuses: ScrapeStatus) -> Endpoint:
    """An endpoint after these scrapes."""
    seen = Endpoint(EndpointSpec(address=HERE))
    for status in statuses:
        observe(seen, status)
    return seen


def observe(seen: Endpoint, status: ScrapeStatus, *issues: Issue) -> None:
    seen.observe(
        Observation(address=HERE, began_at=0.0, answered_at=0.1, status=status, issues=issues),
        OPTIONS,
    )


@given(st.lists(statuses, max_size=8))
def test_one_good_scrape_makes_any_endpoint_ready(before: list[ScrapeStatus]) -> None:
    """Whatever was seen before, and however long it was down."""
    assert endpoint(*before, ScrapeStatus.READY).health is Health.READY


@given(st.lists(statuses, max_size=8))
def test_an_unreachable_server_is_down_at_once(before: list[ScrapeStatus]) -> None:
    assert endpoint(*before, ScrapeStatus.UNREACHABLE).health is Health.DOWN


@pytest.mark.parametrize(
    ("status", "health"),
    [(ScrapeStatus.LOADING, Health.LOADING), (ScrapeStatus.ASLEEP, Health.ASLEEP)],
)
def test_a_loading_and_a_sleeping_server_are_seen_as_such(
    status: ScrapeStatus, health: Health
) -> None:
    assert endpoint(ScrapeStatus.READY, status).health is health


def test_an_endpoint_is_down_after_several_failures_in_a_row() -> None:
    """One good scrape in between starts the count again."""
    almost = [ScrapeStatus.FAILED] * (OPTIONS.failures_to_down - 1)
    seen = endpoint(ScrapeStatus.READY, *almost, ScrapeStatus.READY, *almost)
    assert seen.is_serving
    observe(seen, ScrapeStatus.FAILED)
    assert seen.health is Health.DOWN


@given(st.lists(statuses, min_size=1, max_size=8))
def test_only_serving_endpoints_are_usable(seen: list[ScrapeStatus]) -> None:
    """A loading server and one that is down respond to no request."""
    server = endpoint(*seen)
    assert server.is_usable is (server.health in SERVING)
