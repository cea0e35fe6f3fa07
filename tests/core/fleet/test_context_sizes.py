"""Claims about extproc/core/fleet/context_sizes.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.fleet.context_sizes import ContextSizes

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
