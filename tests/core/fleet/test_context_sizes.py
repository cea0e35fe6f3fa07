"""Claims about extproc/core/fleet/context_sizes.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.fleet.context_sizes import ContextSizes
from extproc.core.observation import ModelReading

STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([None, 0, 512, 4096, 32_768, -1])), max_size=60
)


@given(STEPS)
def test_the_least_is_that_of_the_fleet(steps: list[tuple[int, int | None]]) -> None:
    """Endpoints report, change and leave; what is not known does not count."""
    sizes, model = ContextSizes(), dict[int, int]()
    for number, tokens in steps:
        address = Address("10.0.0.1", 8000 + number)
        if tokens == -1:
            sizes.forget(address)
            model.pop(number, None)
        else:
            sizes.report(address, tokens)
            model.pop(number, None)
            if tokens:
                model[number] = tokens
        assert sizes.least == min(model.values(), default=0)


def test_models_that_can_be_loaded_count_until_their_machine_is_gone() -> None:
    sizes = ContextSizes()
    sizes.report(Address("10.0.0.1", 8000), 4096)
    short = ModelReading(name="a", is_loaded=False, context_tokens=1024)
    unknown = ModelReading(name="b", is_loaded=False)
    sizes.report_loadable("gpu-1", {"a": short, "alias": short, "b": unknown})
    assert sizes.least == 1024
    sizes.report_loadable("gpu-1", {"b": unknown})
    assert sizes.least == 4096
    sizes.report_loadable("gpu-1", {})
    assert sizes.least == 4096
