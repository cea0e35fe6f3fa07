"""Claims about extproc/core/prediction/answer_lengths.py."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log
from random import Random

import pytest

from extproc.core.prediction.answer_lengths import (
    BOUNDS,
    DECAY,
    GUESS_RISK,
    LARGEST_WEIGHT,
    LEAST_OF_FLOW,
    LEAST_OF_MODEL,
    MAX_CARRIED,
    AnswerLengths,
    LengthDistribution,
)
from extproc.core.prediction.size_features import SizeFeatures, features_of
from extproc.core.request import Request


def learned(lengths: list[float]) -> LengthDistribution:
    distribution = LengthDistribution()
    for tokens in lengths:
        distribution.add(tokens, is_complete=True)
    return distribution


def test_survival_is_the_share_of_longer_answers() -> None:
    """Of 2,000 answers of 1 to 1,000 tokens, nearly as many exceed each length as did."""
    random = Random(1)
    lengths = [random.uniform(1, 1000) for _ in range(2000)]
    distribution = learned(lengths)
    for tokens in (50, 200, 500, 800):
        really = sum(each > tokens for each in lengths) / len(lengths)
        assert distribution.survival(tokens) == pytest.approx(really, abs=0.06)
    assert distribution.survival(0) == 1.0


def test_it_falls_and_is_never_nothing() -> None:
    """An answer may always be longer than all before it, with a chance that falls with its length
    and with the number of shorter ones."""
    few, many = learned([100.0] * 30), learned([100.0] * 900)
    table = [many.survival(tokens) for tokens in range(0, 5_000_000, 9_999)]
    assert table == sorted(table, reverse=True) and table[-1] > 0.0
    assert 1e-4 < many.survival(200) < few.survival(200) < 0.05
    assert many.survival(2000) < many.survival(200) / 100


def test_a_client_that_left_shows_only_that_the_answer_was_longer() -> None:
    """Half of all clients leave after 100 tokens of answers that have 1,000: they make none of them
    look shorter."""
    distribution = LengthDistribution()
    for _ in range(300):
        distribution.add(100.0, is_complete=False)
        distribution.add(1000.0, is_complete=True)
    assert distribution.survival(700) > 0.9
    naive = learned([100.0, 1000.0] * 300)
    assert naive.survival(700) < 0.6


def test_it_follows_the_workload() -> None:
    """After a thousand long answers few expect short ones, also when weights were scaled back."""
    until_scaled_back = int(log(LARGEST_WEIGHT) / -log(DECAY)) + 1
    distribution = learned([5.0] * until_scaled_back + [20.0] * 3000)
    assert distribution.survival(500) < 0.01
    for _ in range(3000):
        distribution.add(1000.0, is_complete=True)
    assert distribution.survival(500) > 0.9


def test_a_flow_has_its_own_once_enough_of_it_is_known() -> None:
    """Before that it is taken for one of its model, and a model with few answers is unknown."""
    lengths = AnswerLengths()
    usual = features_of(Request(id="r", timeout_s=1.0, tenant="a"), "m", "")
    other = features_of(Request(id="r", timeout_s=1.0, tenant="b"), "m", "")
    for _ in range(LEAST_OF_MODEL - 1):
        lengths.add(usual, 100.0, is_complete=True)
    assert lengths.of(usual) is None
    lengths.add(usual, 100.0, is_complete=True)
    of_model = lengths.of(usual)
    assert of_model is lengths.of(other) is not None
    for _ in range(LEAST_OF_FLOW):
        lengths.add(other, 900.0, is_complete=True)
    of_other = lengths.of(other)
    assert of_other is not None and of_other is not of_model
    assert of_other.survival(500) > 0.9
    assert lengths.of(usual) is of_model
    assert lengths.of_model("unknown") is None


def test_a_guess_by_few_answers_is_hardly_exceeded() -> None:
    """Whatever their lengths are like: of the next answers at most as many are longer as may be."""
    random = Random(1)
    draws: list[Callable[[], float]] = [
        lambda: random.lognormvariate(5.0, 1.5),
        lambda: 100.0 * random.paretovariate(1.2),
        lambda: random.choice([5.0, 5.0, 5.0, 5.0, 4000.0]),
    ]
    for draw in draws:
        exceeded = tries = 0
        for answers in range(1, LEAST_OF_MODEL):
            for _ in range(200):
                guess = learned([draw() for _ in range(answers)]).guess()
                exceeded += draw() > guess
                tries += 1
        assert exceeded / tries <= GUESS_RISK


def test_a_guess_falls_with_each_answer() -> None:
    """The first ones may all be short; one that was cut off was longer than that."""
    assert LengthDistribution().guess() == inf
    guesses = [learned([20.0] * count).guess() for count in range(1, LEAST_OF_MODEL)]
    assert guesses == sorted(guesses, reverse=True)
    assert guesses[0] > 40_000 and 2800 < guesses[-1] < 3000
    longer = learned([20.0] * 9)
    longer.add(900.0, is_complete=False)
    assert longer.guess() > 3 * learned([20.0] * 10).guess()
    lengths = AnswerLengths()
    features = features_of(Request(id="r", timeout_s=1.0), "m", "")
    assert lengths.guess(features) == lengths.guess_of_model("m") == inf
    lengths.add(features, 20.0, is_complete=True)
    assert lengths.guess(features) == lengths.guess_of_model("m") == guesses[0]


def test_who_allows_more_tokens_gets_longer_answers() -> None:
    """Nine of ten answers are short because their clients allow no more. Of a request that allows
    many nothing is known by them."""
    lengths = AnswerLengths()

    def bounded(max_tokens: int | None) -> SizeFeatures:
        return features_of(Request(id="r", timeout_s=1.0, max_tokens=max_tokens), "m", "")

    for _ in range(20 * LEAST_OF_MODEL):
        lengths.add(bounded(60), 50.0, is_complete=True)
    assert lengths.of(bounded(50)) is not None
    assert lengths.of(bounded(700)) is lengths.of(bounded(None)) is None
    for _ in range(LEAST_OF_MODEL):
        lengths.add(bounded(700), 600.0, is_complete=True)
    known = lengths.of(bounded(600))
    assert known is not None and known.survival(500) > 0.7
    assert lengths.of(bounded(None)) is None
    pooled = lengths.of_model("m")
    assert pooled is not None and pooled.survival(500) < 0.1
    copy = AnswerLengths()
    copy.restore(lengths.as_plain())
    carried = copy.of(bounded(600))
    assert carried is not None and carried.survival(500) == pytest.approx(known.survival(500))


def of_model(model: str, count: int, tokens: float, into: AnswerLengths) -> AnswerLengths:
    features = features_of(Request(id="r", timeout_s=1.0), model, "")
    for _ in range(count):
        into.add(features, tokens, is_complete=True)
    return into


def test_another_process_knows_the_lengths_of_the_models_used_last() -> None:
    """And what it has learned of a model itself is kept, if that is more."""
    source = AnswerLengths()
    for number in range(MAX_CARRIED + 5):
        of_model(f"m{number}", 50, 100.0, source)
    plain = source.as_plain()
    assert plain[0][0] == f"m{MAX_CARRIED + 4}"
    assert len({name.partition("\n")[0] for name, _ in plain[:MAX_CARRIED]}) == MAX_CARRIED
    many = AnswerLengths()
    for number in range(MAX_CARRIED * (1 + BOUNDS)):
        of_model(f"m{number}", 1, 100.0, many)
    assert len(many.as_plain()) == MAX_CARRIED * (1 + BOUNDS)
    other = of_model("m20", 90, 3000.0, of_model("m19", 40, 3000.0, AnswerLengths()))
    own = other.of_model("m20")
    other.restore(plain)
    assert other.of_model("m20") is own and other.of_model("m0") is None
    for name in ("m19", "m12"):
        before, after = source.of_model(name), other.of_model(name)
        assert before is not None and after is not None and after.answers == 50
        for each in (before, after):
            each.add(700.0, is_complete=True)  # they go on alike
        for tokens in (0.0, 90.0, 500.0, 5000.0):
            assert after.survival(tokens) == pytest.approx(before.survival(tokens))


@pytest.mark.parametrize("values", [(), (1.0,), (-1.0,) * 137, (float("nan"),) * 137, "a" * 137])
def test_what_is_no_distribution_is_an_error(values: tuple[float, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        AnswerLengths().restore((("m", values),))
