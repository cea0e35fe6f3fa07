"""Claims about extproc/core/fleet/splits.py."""

from __future__ import annotations

from collections import Counter
from random import Random

from extproc.core.fleet.splits import resolve_model


def test_splits_follow_their_weights() -> None:
    random = Random(1)
    splits = {"chat": {"tiny": 90.0, "small": 10.0}, "alias": {"tiny": 1.0}}
    drawn = Counter(resolve_model("chat", splits, random) for _ in range(10_000))
    assert set(drawn) == {"tiny", "small"} and 850 < drawn["small"] < 1150
    assert resolve_model("alias", splits, random) == "tiny"
    assert resolve_model("other", splits, random) == "other"
    assert resolve_model(None, splits, random) is None


class LastPoint(Random):
    """The largest number that `random()` can return."""

    def random(self) -> float:
        return 1.0 - 2.0**-53


def test_weights_of_any_size_leave_no_gap() -> None:
    """Weights need no sum of 1 or 100; the largest random number is still the last model."""
    for weights in ({"a": 0.1, "b": 0.2, "c": 0.3}, {"a": 1e-9, "b": 1e9}, {"a": 7.0, "b": 7.0}):
        assert resolve_model("chat", {"chat": weights}, LastPoint()) == list(weights)[-1]


def test_a_name_that_stands_for_one_model_costs_no_random_number() -> None:
    """A simulation with the same seed is the same with and without an alias."""
    random = Random(5)
    resolve_model("alias", {"alias": {"tiny": 3.0}}, random)
    assert random.random() == Random(5).random()


def test_a_name_without_targets_stands_for_itself() -> None:
    assert resolve_model("chat", {"chat": {}}, Random(1)) == "chat"


class Beyond(Random):
    """No generator returns 1.0; rounding of the weights' sums may have the same effect."""

    def random(self) -> float:
        return 1.0


def test_a_point_behind_all_weights_is_the_name_itself() -> None:
    """So that an error of rounding rejects no request."""
    assert resolve_model("chat", {"chat": {"a": 0.1, "b": 0.2}}, Beyond()) == "chat"
