"""Claims about extproc/status/readiness.py, on a real core."""

from __future__ import annotations

from random import Random

from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.status import why_not_ready
from tests.fakes.small_fleet import ONE as ADDRESS
from tests.fakes.small_fleet import dispatcher_of_one


def test_ready_with_one_endpoint_that_takes_requests() -> None:
    """One endpoint that may be picked is enough, also when all its slots are busy."""
    assert why_not_ready(dispatcher_of_one(busy_slots=2)) == ()


def test_reasons_name_the_endpoint_and_its_state() -> None:
    """Without one, each endpoint is named with what keeps requests from it."""
    assert why_not_ready(Dispatcher(Random(1))) == ("there are no endpoints",)
    assert why_not_ready(dispatcher_of_one())[1] == "10.0.0.1:8080 is loading"
    dispatcher = dispatcher_of_one(busy_slots=0)
    dispatcher.set_intent(ADDRESS, Intent.DISABLED, 2.0)
    assert why_not_ready(dispatcher)[1] == "10.0.0.1:8080 is disabled; it is slow"
    dispatcher.set_intent(ADDRESS, Intent.ACTIVE, 2.0)
    dispatcher.set_routable(ADDRESS, False, 2.0)
    assert "not published to Envoy yet" in why_not_ready(dispatcher)[1]


def test_many_endpoints_are_counted_not_named() -> None:
    """The page stays short, however large the fleet."""
    dispatcher = Dispatcher(Random(1))
    specs = [EndpointSpec(address=Address("10.0.0.2", port)) for port in range(1, 101)]
    dispatcher.set_members("test", specs, 0.0)
    reasons = why_not_ready(dispatcher)
    assert len(reasons) == 12 and reasons[-1] == "and 90 more"
