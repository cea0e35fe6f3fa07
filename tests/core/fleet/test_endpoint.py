"""Claims about extproc/core/fleet/endpoint.py: observed health and the operator's intent."""

from __future__ import annotations

import pytest

from extproc.admin.endpoint_json import endpoint_json
from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec, Intent, WakeOptions
from extproc.core.fleet.health import Health, HealthOptions
from extproc.core.observation import Issue, ModelReading, Observation, ScrapeStatus
from tests.fakes.small_fleet import SmallFleet

ADDRESS = Address("10.0.0.1", 8080)
ISSUE = Issue(code="slots-off", message="it hides its slots", remedy="start it without --no-slots")
MODEL = ModelReading(name="tiny")


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint(EndpointSpec(address=ADDRESS))


def see(
    endpoint: Endpoint,
    status: ScrapeStatus,
    *,
    issues: tuple[Issue, ...] = (),
    models: tuple[ModelReading, ...] = (),
) -> None:
    observation = Observation(
        address=ADDRESS, began_at=1.0, answered_at=1.0, status=status, issues=issues, models=models
    )
    endpoint.observe(observation, HealthOptions())


@pytest.mark.parametrize(
    ("status", "health", "is_serving"),
    [
        (ScrapeStatus.READY, Health.READY, True),
        (ScrapeStatus.ASLEEP, Health.ASLEEP, True),
        (ScrapeStatus.LOADING, Health.LOADING, False),
        (ScrapeStatus.UNREACHABLE, Health.DOWN, False),
        (ScrapeStatus.FAILED, Health.LOADING, False),
    ],
)
def test_the_first_scrape(
    endpoint: Endpoint, status: ScrapeStatus, health: Health, is_serving: bool
) -> None:
    """A new endpoint is loading until a scrape shows more; one failure shows nothing."""
    assert endpoint.health is Health.LOADING
    see(endpoint, status)
    assert (endpoint.health, endpoint.is_serving) == (health, is_serving)


def test_an_issue_degrades(endpoint: Endpoint) -> None:
    """It serves, and shows the problem to fix; once that is fixed it is ready again."""
    see(endpoint, ScrapeStatus.READY, issues=(ISSUE,))
    assert (endpoint.health, endpoint.issues) == (Health.DEGRADED, (ISSUE,))
    assert endpoint.is_serving
    see(endpoint, ScrapeStatus.READY)
    assert (endpoint.health, endpoint.issues) == (Health.READY, ())


def test_three_failures_in_a_row(endpoint: Endpoint) -> None:
    """Two failures change nothing, the third makes it down, and one good scrape brings it back."""
    see(endpoint, ScrapeStatus.READY)
    for _ in range(2):
        see(endpoint, ScrapeStatus.FAILED, issues=(ISSUE,))
        assert endpoint.health is Health.READY
        assert endpoint.issues == (ISSUE,)
    see(endpoint, ScrapeStatus.READY)
    for _ in range(3):
        assert endpoint.health is Health.READY
        see(endpoint, ScrapeStatus.FAILED)
    assert endpoint.health is Health.DOWN
    see(endpoint, ScrapeStatus.READY)
    assert (endpoint.health, endpoint.consecutive_failures) == (Health.READY, 0)


def test_models_persist_after_a_scrape_without_models(endpoint: Endpoint) -> None:
    """Only a scrape that reports models replaces them."""
    see(endpoint, ScrapeStatus.READY, models=(MODEL,))
    see(endpoint, ScrapeStatus.READY)
    assert endpoint.models == (MODEL,)


@pytest.mark.parametrize("intent", [Intent.DRAINING, Intent.DISABLED])
def test_intent_stops_new_leases(endpoint: Endpoint, intent: Intent) -> None:
    """The operator's intent does not change the observed health."""
    see(endpoint, ScrapeStatus.READY)
    was_pickable = endpoint.is_pickable
    endpoint.intent = intent
    assert was_pickable and not endpoint.is_pickable
    assert endpoint.health is Health.READY


@pytest.mark.parametrize("flag", ["is_removed", "is_routable"])
def test_membership_and_envoy_stop_new_leases(endpoint: Endpoint, flag: str) -> None:
    """Neither a removed endpoint nor one that is unknown to Envoy is pickable."""
    see(endpoint, ScrapeStatus.READY)
    setattr(endpoint, flag, not getattr(endpoint, flag))
    assert not endpoint.is_pickable


def test_first_choice(endpoint: Endpoint) -> None:
    """Fresh and awake."""
    see(endpoint, ScrapeStatus.READY)
    unseen = endpoint.is_first_choice
    endpoint.refresh(1.0)
    fresh = endpoint.is_first_choice
    see(endpoint, ScrapeStatus.ASLEEP)
    assert (unseen, fresh, endpoint.is_first_choice) == (False, True, False)


def shown(fleet: SmallFleet) -> tuple[float | None, list[str]]:
    """How long the operator's intent applies, and the codes of the issues, as `/status` has it."""
    (endpoint,) = fleet.dispatcher.fleet
    tree = endpoint_json(fleet.dispatcher, endpoint, fleet.now)
    return tree["intent_age_s"], [issue["code"] for issue in tree["issues"]]


def test_a_server_that_was_replaced_at_a_drained_address() -> None:
    """It gets no requests and says so, until the endpoint is activated: a restart does not take
    back what an operator said."""
    fleet = SmallFleet(1)
    (address,) = fleet.addresses
    for instance in ("a", "b"):
        fleet.scrape(address, instance=instance)
    assert shown(fleet) == (None, [])
    fleet.dispatcher.set_intent(address, Intent.DRAINING, fleet.now)
    fleet.now += 60.0
    assert shown(fleet) == (60.0, [])
    fleet.scrape(address, instance="c")
    assert shown(fleet) == (60.0, ["replaced-while-drained"])
    assert not fleet.endpoint(address).is_pickable
    fleet.dispatcher.set_intent(address, Intent.ACTIVE, fleet.now)
    assert shown(fleet) == (None, []) and fleet.endpoint(address).is_pickable


def test_a_closed_model_gets_no_requests(endpoint: Endpoint) -> None:
    """A router that has loaded none of its models is a router still."""
    closed = ModelReading(name="a", aliases=("b",), is_loaded=False, is_closed=True)
    see(endpoint, ScrapeStatus.READY, models=(MODEL, closed))
    assert (endpoint.models, set(endpoint.models_by_name)) == ((MODEL,), {"tiny"})
    assert endpoint.is_router
    see(endpoint, ScrapeStatus.READY, models=(closed,))
    assert (endpoint.models, endpoint.models_by_name, endpoint.is_router) == ((), {}, True)


def test_an_endpoint_whose_machine_can_be_woken_is_off_without_an_issue() -> None:
    """One that is off stays so, however its scrapes fail; one that is being put to sleep is off at
    the first failure. While its machine does not wake it is down as any other."""
    endpoint = Endpoint(EndpointSpec(address=ADDRESS, wake=WakeOptions(mac="02:00:00:00:00:01")))

    def fail(status: ScrapeStatus) -> tuple[Health, tuple[Issue, ...]]:
        see(endpoint, status, issues=(ISSUE,))
        return endpoint.health, endpoint.issues

    assert fail(ScrapeStatus.FAILED) == (Health.LOADING, (ISSUE,))
    assert fail(ScrapeStatus.UNREACHABLE) == (Health.OFF, ())
    assert fail(ScrapeStatus.FAILED) == (Health.OFF, ())
    assert endpoint.is_wakeable and not endpoint.is_answering
    see(endpoint, ScrapeStatus.READY)
    assert (endpoint.is_pickable, endpoint.is_wakeable) == (True, False)
    endpoint.is_going_off = True
    assert (endpoint.is_pickable, endpoint.is_wakeable) == (False, False)
    assert endpoint.is_waited_for
    assert fail(ScrapeStatus.FAILED) == (Health.OFF, ())
    endpoint.set_wake_issue(ISSUE, is_lost=True)
    assert (endpoint.health, endpoint.issues) == (Health.DOWN, (ISSUE,))
    assert fail(ScrapeStatus.UNREACHABLE) == (Health.DOWN, (ISSUE, ISSUE))
    endpoint.set_wake_issue(None)
    assert fail(ScrapeStatus.UNREACHABLE) == (Health.OFF, ())
