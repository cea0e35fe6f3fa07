"""Claims about extproc/core/prediction/answer_sizes.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from extproc.core.prediction import answer_sizes
from extproc.core.prediction.answer_sizes import AnswerSizes
from extproc.core.prediction.size_features import PATH, SizeFeatures, features_of
from extproc.core.request import Request

BARE = Request(id="r", timeout_s=1.0, traits="/v1/chat/completions")


def features(request: Request = BARE, objective: str = "") -> SizeFeatures:
    return features_of(request, "m", objective)


def lognormal(random: Random, mean: float, variation: float = 1.0) -> float:
    sigma2 = math.log(1 + variation**2)
    return random.lognormvariate(math.log(mean) - sigma2 / 2, math.sqrt(sigma2))


def taught(
    draw: Callable[[Random], tuple[SizeFeatures, float]], count: int = 1500, seed: int = 1
) -> AnswerSizes:
    random, sizes = Random(seed), AnswerSizes()
    for _ in range(count):
        sizes.learn(*draw(random))
    return sizes


def expected(sizes: AnswerSizes, of: SizeFeatures) -> float:
    tokens = sizes.expected_tokens(of)
    assert tokens is not None
    return tokens


def test_nothing_is_known_at_first() -> None:
    sizes = AnswerSizes()
    assert sizes.expected_tokens(features()) is None
    for _ in range(int(answer_sizes.MIN_SAMPLES) - 1):
        sizes.learn(features(), 100.0)
    assert sizes.expected_tokens(features()) is None
    for _ in range(5):
        sizes.learn(features(), 100.0)
    assert expected(sizes, features()) == pytest.approx(100.0, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_it_learns_the_mean_of_a_distribution(seed: int) -> None:
    """Not its median, which is 0.7 of the mean here."""
    sizes = taught(lambda random: (features(), lognormal(random, 200.0)), seed=seed)
    assert expected(sizes, features()) == pytest.approx(200.0, rel=0.2)


KINDS_OF_SIGNAL: dict[str, Callable[[bool], SizeFeatures]] = {
    "path": lambda is_long: features(replace(BARE, traits="/long" if is_long else "/short")),
    "objective": lambda is_long: features(objective="long" if is_long else "short"),
    "tenant": lambda is_long: features(replace(BARE, tenant="l" if is_long else "s")),
    "bound": lambda is_long: features(replace(BARE, max_tokens=65536 if is_long else 32768)),
    "length": lambda is_long: features(replace(BARE, prompt_tokens=9000 if is_long else 90)),
    "beginning": lambda is_long: features(replace(BARE, prompt_blocks=(1, 2) if is_long else (3,))),
}


@pytest.mark.parametrize("kind", KINDS_OF_SIGNAL)
def test_each_kind_of_feature_may_carry_the_signal(kind: str) -> None:
    """One request in eight is twenty times as long."""
    of = KINDS_OF_SIGNAL[kind]

    def draw(random: Random) -> tuple[SizeFeatures, float]:
        is_long = random.random() < 0.125
        return of(is_long), lognormal(random, 1000.0 if is_long else 50.0, 0.8)

    sizes = taught(draw)
    assert expected(sizes, of(True)) == pytest.approx(1000.0, rel=0.35)
    assert expected(sizes, of(False)) == pytest.approx(50.0, rel=0.35)


def test_features_without_a_signal_add_no_noise() -> None:
    """Each request has random features, none of which says anything: all estimates agree."""

    def draw(random: Random) -> tuple[SizeFeatures, float]:
        return whatever(random), lognormal(random, 200.0, 1.5)

    def whatever(random: Random) -> SizeFeatures:
        beginning = random.randrange(20)
        request = replace(
            BARE,
            traits=random.choice(("/a", "/b")),
            tenant=str(random.randrange(10)),
            prompt_tokens=random.choice((10, 100, 1000)),
            prompt_blocks=(beginning, beginning + 100),
        )
        return features(request)

    sizes, random = taught(draw, 4000), Random(2)
    estimates = [expected(sizes, whatever(random)) for _ in range(500)]
    center = sorted(estimates)[250]
    near = sum(center / math.sqrt(2) < one < center * math.sqrt(2) for one in estimates)
    assert near >= 490, "all but a few are in one class"


@pytest.mark.parametrize("seed", range(4))
def test_what_chance_explains_does_not_count(seed: int) -> None:
    """At any time after the first samples, requests whose features say nothing are expected to be
    equally long, to a factor that is far less than that of a class of sizes."""
    random, sizes = Random(seed), AnswerSizes()

    def whatever() -> SizeFeatures:
        system = random.randrange(8)
        request = replace(
            BARE,
            traits=random.choice(("/a", "/b", "/c")),
            tenant=str(random.randrange(5)),
            prompt_tokens=random.choice((10, 100, 1000)),
            prompt_blocks=(system, system + 100, random.getrandbits(60)),
        )
        return features(request)

    far, asked = 0, 0
    for number in range(3000):
        sizes.learn(whatever(), lognormal(random, 200.0, 1.5))
        if number >= 300 and number % 20 == 0:
            estimates = sorted(expected(sizes, whatever()) for _ in range(21))
            ratios = [one / estimates[10] for one in estimates]
            far += sum(not 1 / math.sqrt(2) < ratio < math.sqrt(2) for ratio in ratios)
            asked += len(ratios)
    assert far <= asked / 100, "one in a hundred is in another class"
    estimates = sorted(expected(sizes, whatever()) for _ in range(200))
    assert estimates[-1] / estimates[0] < math.sqrt(2)


def test_a_clear_signal_counts_in_full() -> None:
    """Within some tens of samples, and then to the end."""

    def draw(random: Random) -> tuple[SizeFeatures, float]:
        is_long = random.random() < 0.5
        request = replace(BARE, traits="/long" if is_long else "/short")
        return features(request), lognormal(random, 1000.0 if is_long else 50.0, 0.8)

    random, sizes = Random(1), AnswerSizes()
    shares = []
    for _ in range(2000):
        sizes.learn(*draw(random))
        shares.append(sizes._models["m"].shares[PATH])
    assert shares[0] == 0.0
    assert min(shares[60:]) > 0.5
    assert min(shares[500:]) > 0.8


def test_a_feature_counts_as_soon_as_it_was_learned() -> None:
    """Also where an estimate was asked for before: what was not found then is looked up again."""

    def draw(random: Random) -> tuple[SizeFeatures, float]:
        is_long = random.random() < 0.5
        request = replace(BARE, tenant="long" if is_long else "short")
        return features(request), lognormal(random, 1000.0 if is_long else 50.0, 0.5)

    sizes, late = taught(draw), features(replace(BARE, tenant="late"))
    before = expected(sizes, late)
    for _ in range(20):
        sizes.learn(late, 1000.0)
        expected(sizes, late)
    assert expected(sizes, late) > 2.0 * before


def test_a_change_of_the_workload_is_followed() -> None:
    sizes = taught(lambda random: (features(), lognormal(random, 50.0, 0.5)), 1000)
    random = Random(3)
    for _ in range(1500):
        sizes.learn(features(), lognormal(random, 800.0, 0.5))
    assert expected(sizes, features()) == pytest.approx(800.0, rel=0.3)


def test_a_bound_cuts_the_distribution() -> None:
    """Of answers of 20 or 2,000 tokens, a bound of 100 leaves the short ones as they are."""
    sizes = taught(lambda random: (features(), random.choice((20.0, 2000.0))))
    bounded = features(replace(BARE, max_tokens=100))
    assert expected(sizes, features()) == pytest.approx(1010.0, rel=0.2)
    assert expected(sizes, bounded) == pytest.approx(60.0, rel=0.2)


def test_a_bound_that_is_not_kept_buys_nothing() -> None:
    """A tenant sends a bound of 1 that its servers ignore: its requests are soon expected to be as
    long as they are. The bounds of others still count, and its own once it keeps them again."""
    liar = features(replace(BARE, tenant="liar", max_tokens=1))
    honest = features(replace(BARE, tenant="honest", max_tokens=100))
    plain = features(replace(BARE, tenant="honest"))
    random = Random(4)
    sizes = taught(lambda random: (plain, lognormal(random, 800.0)))
    assert expected(sizes, liar) < 1.1
    for _ in range(3):
        sizes.learn(liar, lognormal(random, 800.0))
        sizes.learn(honest, 100.0)
    assert expected(sizes, liar) > 0.3 * expected(sizes, plain)
    assert expected(sizes, honest) < 101.0
    for _ in range(600):
        sizes.learn(liar, 1.0)
    assert expected(sizes, liar) < 10.0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and prompts that nobody repeats are forgotten; what is repeated is kept."""
    for bound in ("MAX_EFFECTS", "MAX_GROUPS", "MAX_MODELS", "MAX_FLOWS", "MAX_SIMILAR"):
        monkeypatch.setattr(answer_sizes, bound, 50)
    sizes = AnswerSizes()
    for number in range(2000):
        request = replace(
            BARE,
            tenant=f"t{number}",
            traits=f"/{number}",
            max_tokens=1,
            prompt_blocks=tuple(range(number * 100, number * 100 + 70)),
        )
        sizes.learn(features_of(request, f"m{number}", f"o{number}"), 5000.0)
        sizes.learn(features(), 100.0)
        sizes.expected_tokens(features())
    for number in range(200):
        sizes.expected_tokens(features(replace(BARE, tenant=f"t{number}")))
    assert len(sizes) <= 50
    for store in (sizes._models, sizes._groups, sizes._excess, sizes._similar):
        assert len(store) <= 50
    assert expected(sizes, features()) == pytest.approx(100.0, rel=0.15)


def test_unique_prompts_take_one_entry_each() -> None:
    """A beginning is followed one block deeper only where it came before."""
    sizes = AnswerSizes()
    sizes.learn(features(), 1.0)
    before = len(sizes)
    sizes.learn(features(replace(BARE, prompt_blocks=tuple(range(100)))), 1.0)
    assert len(sizes) == before + 1
    sizes.learn(features(replace(BARE, prompt_blocks=tuple(range(100)))), 1.0)
    assert len(sizes) == before + 2


def test_a_second_has_room_for_so_many_samples() -> None:
    sizes = AnswerSizes()
    wanted = [sizes.wants_sample(5.0 + number / 1000) for number in range(500)]
    assert sum(wanted) == answer_sizes.MAX_LEARNED_A_SECOND
    assert sizes.wants_sample(6.1)


def test_errors_are_factors_in_both_directions() -> None:
    sizes = AnswerSizes()
    sizes.record_error("m", 1.0, 2.0)
    assert sizes.error_factors(0.5) == {}, "nothing is known of that model"
    sizes.learn(features(), 100.0)
    for expected_s, used_s in ((1.0, 2.0), (2.0, 1.0), (1.0, 2.0), (3.0, 3.0), (0.0, 1.0)):
        sizes.record_error("m", expected_s, used_s)
    assert sizes.error_factors(0.5)["m"] == pytest.approx(2.0, rel=0.05)
    assert sizes.error_factors(0.1)["m"] == pytest.approx(1.0, rel=0.05)


def test_a_beginning_counts_as_deep_as_it_is_known() -> None:
    """Of a prompt that goes on as none did before, and of one that came often to its end."""
    deep = features(replace(BARE, prompt_blocks=tuple(range(64))))
    other = features(replace(BARE, prompt_blocks=tuple(range(1000, 1064))))

    def draw(random: Random) -> tuple[SizeFeatures, float]:
        is_long = random.random() < 0.125
        return (deep if is_long else other), lognormal(random, 1000.0 if is_long else 50.0, 0.8)

    sizes = taught(draw)
    assert expected(sizes, deep) == pytest.approx(1000.0, rel=0.35)
    branched = features(replace(BARE, prompt_blocks=(*range(8), *range(2000, 2056))))
    assert expected(sizes, branched) > 3.0 * expected(sizes, other)
    assert expected(sizes, features(replace(BARE, prompt_blocks=(3000,)))) < expected(sizes, deep)


def test_a_model_whose_estimates_were_not_compared_has_no_error() -> None:
    sizes = AnswerSizes()
    sizes.learn(features(), 100.0)
    sizes.learn(features_of(BARE, "other", ""), 100.0)
    sizes.record_error("m", 1.0, 1.0)
    assert set(sizes.error_factors(0.5)) == {"m"}
