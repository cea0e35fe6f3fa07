"""Claims about extproc/core/fleet/eligibility.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.constraints import NO_NUMBERS, UNRESOLVED, Constraints
from extproc.core.fleet.eligibility import is_eligible, why_not
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import AdapterReading, ModelReading, Observation, ScrapeStatus

HERE, ELSEWHERE = Address("10.0.0.1", 8080), Address("10.0.0.2", 8080)
MODELS = ["small", "large", "tiny"]
ADAPTERS = ["bard", "pirate"]


def names(known: list[str]) -> st.SearchStrategy[str | None]:
    return st.sampled_from([None, *known, "unknown"])


demands = st.builds(
    Constraints,
    model=names(MODELS),
    adapter=names(ADAPTERS),
    allowed=st.sampled_from(
        [None, frozenset({HERE}), frozenset({HERE, ELSEWHERE}), frozenset({ELSEWHERE})]
    ),
    model_name_on_wire=names(MODELS),
    adapter_numbers=st.sampled_from(
        [NO_NUMBERS, frozenset({0}), frozenset({0, 1}), frozenset({7})]
    ),
    context_tokens=st.sampled_from([0, 4096, 32_768]),
    api=st.sampled_from(["", "one", "two"]),
)


@st.composite
def endpoints(draw: st.DrawFn) -> Endpoint:
    endpoint = Endpoint(EndpointSpec(address=HERE))
    models = draw(st.lists(st.sampled_from(MODELS), unique=True))
    adapters = draw(st.lists(st.sampled_from(ADAPTERS), unique=True))
    is_router = draw(st.booleans())
    observation = Observation(
        address=HERE,
        began_at=0.0,
        answered_at=0.1,
        status=ScrapeStatus.READY,
        models=tuple(
            ModelReading(name=name, aliases=(f"{name}-alias",), slots=1 if is_router else None)
            for name in models
        ),
        context_tokens=draw(st.sampled_from([None, 2048, 4096, 131_072])),
        apis=draw(st.sampled_from([None, frozenset[str](), frozenset({"one"})])),
        adapters=tuple(AdapterReading(id=id_, name=name) for id_, name in enumerate(adapters)),
    )
    endpoint.observe(observation, HealthOptions())
    return endpoint


@given(demands, endpoints())
def test_an_endpoint_is_eligible_unless_there_is_a_reason_why_not(
    constraints: Constraints, endpoint: Endpoint
) -> None:
    assert is_eligible(constraints, endpoint) is (not list(why_not(constraints, endpoint)))


@given(endpoints())
def test_without_constraints_every_endpoint_is_eligible(endpoint: Endpoint) -> None:
    assert is_eligible(Constraints(), endpoint)


@given(endpoints())
def test_while_names_are_unresolved_no_endpoint_is_eligible(endpoint: Endpoint) -> None:
    assert not is_eligible(UNRESOLVED, endpoint)
    [reason] = why_not(UNRESOLVED, endpoint)
    assert "adapters" in reason
