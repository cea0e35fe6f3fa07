"""Claims about extproc/core/fleet/catalog.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.fleet.catalog import ContextSizes, FleetCatalog
from extproc.core.observation import ModelReading
from tests.fakes.steered_fleet import SteeredFleet

ADDRESSES = [Address("10.0.0.1", port) for port in range(1, 6)]
NAMES = "abcd"


def readings(naming: dict[str, str]) -> dict[str, ModelReading]:
    """Each name with the model that it stands for."""
    return {name: ModelReading(name=model) for name, model in naming.items()}


def catalog_of(*namings: dict[str, str]) -> FleetCatalog:
    found = FleetCatalog()
    for address, naming in zip(ADDRESSES, namings, strict=False):
        found.report(address, readings(naming), {})
    return found


def test_an_alias_is_the_model_that_it_stands_for() -> None:
    """Also by way of another server: `b` is `a` here, and `c` is `b` there."""
    found = catalog_of({"a": "a", "b": "a"}, {"b": "b", "c": "b"})
    assert {found.canonical_name(name) for name in "abc"} == {"a"}
    assert found.canonical_name("never heard of") == "never heard of"


def test_names_that_are_two_models_somewhere_are_not_the_same() -> None:
    found = catalog_of({"a": "a", "b": "a"}, {"a": "a", "b": "b"})
    assert [found.canonical_name(name) for name in "ab"] == ["a", "b"]
    found.forget(ADDRESSES[1])
    assert found.canonical_name("b") == "a"
    found.report(ADDRESSES[0], readings({"a": "a"}), {})
    assert found.canonical_name("b") == "b"


def test_several_models_are_more_than_several_names() -> None:
    assert not catalog_of().has_several_models
    assert not catalog_of({"a": "a", "b": "a"}, {"a": "a"}).has_several_models
    found = catalog_of({"a": "a"}, {"b": "b"})
    assert found.has_several_models
    found.forget(ADDRESSES[1])
    found.forget(ADDRESSES[4])
    assert not found.has_several_models


class Counted(str):
    """A name that counts how often names are compared."""

    __slots__ = ()
    comparisons = 0

    def __hash__(self) -> int:
        Counted.comparisons += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


def comparisons(models: int, aliases: int) -> int:
    """How often names are compared until the catalog is complete."""
    naming: dict[str, str] = {}
    for number in range(models):
        model = Counted(f"model {number}")
        naming |= {Counted(f"alias {number} {each}"): model for each in range(aliases)}
        naming[model] = model
    before = Counted.comparisons
    catalog_of(naming, {"alias 0 0": "other", "other": "other"})
    return Counted.comparisons - before


def test_many_models_cost_time_in_proportion_to_their_names() -> None:
    """A router with thousands of models must not delay requests: each name costs the same."""
    assert comparisons(400, 1) < 5 * comparisons(100, 1)


def test_all_numbers_must_be_of_one_server() -> None:
    found = FleetCatalog()
    found.report(ADDRESSES[0], {}, {"bard": 0})
    found.report(ADDRESSES[1], {}, {"poet": 1})
    assert found.has_adapters(frozenset({0})) and found.has_adapters(frozenset({1}))
    assert not found.has_adapters(frozenset({0, 1}))
    found.report(ADDRESSES[1], {}, {"poet": 1, "bard": 0})
    assert found.has_adapters(frozenset({0, 1}))
    found.report(ADDRESSES[1], {}, {})
    assert not found.has_adapters(frozenset({1}))


NAMINGS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(NAMES)).map(
    lambda naming: naming | {model: model for model in naming.values()}
)


@given(
    st.lists(
        st.tuples(st.sampled_from(ADDRESSES), st.none() | NAMINGS, st.frozensets(st.integers(0, 2)))
    ),
    st.frozensets(st.integers(0, 2), min_size=1),
)
def test_the_catalog_equals_a_query_of_all_servers(
    reports: list[tuple[Address, dict[str, str] | None, frozenset[int]]], numbers: frozenset[int]
) -> None:
    """After any reports in any order; and two models of one server never become the same."""
    found = FleetCatalog()
    fleet: dict[Address, tuple[dict[str, str], frozenset[int]]] = {}
    for address, naming, ids in reports:
        if naming is None:
            found.forget(address)
            fleet.pop(address, None)
        else:
            adapters = {str(number): number for number in ids}
            found.report(address, readings(naming), adapters)
            fleet[address] = (naming, ids)
    models = {model for naming, _ in fleet.values() for model in naming.values()}
    assert found.has_several_models is (len(models) > 1)
    assert found.has_adapters(numbers) is any(numbers <= ids for _, ids in fleet.values())
    for naming, _ in fleet.values():
        for one in naming:
            for other in naming:
                if naming[one] != naming[other]:
                    assert found.canonical_name(one) != found.canonical_name(other)
    afresh = FleetCatalog()
    for address, (naming, _) in fleet.items():
        afresh.report(address, readings(naming), {})
    assert [found.canonical_name(name) for name in NAMES] == [
        afresh.canonical_name(name) for name in NAMES
    ]


def test_only_a_known_name_has_a_model() -> None:
    """Any of its names is called by one; of an unknown one nothing is claimed."""
    fleet = SteeredFleet()
    fleet.add(1, models=[ModelReading(name="big", aliases=("large",))])
    catalog = fleet.dispatcher.resolver.names.catalog
    assert catalog.model_named("large") == catalog.model_named("big") != ""
    assert catalog.model_named("unknown") == ""
    assert catalog.canonical_name("unknown") == "unknown"


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
