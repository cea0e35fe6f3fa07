"""Claims about extproc/xds/ca_rollout.py, against an Envoy that takes a cluster whole or not."""

from __future__ import annotations

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.security.trust import Trust
from extproc.xds.ca_rollout import CaRollout


def trust(name: str, content: str = "1") -> Trust:
    return Trust(profile=name, ca_pem=content)


def wanted(*trusts: Trust) -> dict[str, Trust]:
    return {each.profile: each for each in trusts}


A, B, C = (trust(name) for name in "abc")
NOBODY: dict[str, Trust] = {}


class Envoy:
    """Refuses what holds one of `bad`; counts its rejections."""

    def __init__(self, *bad: Trust) -> None:
        self.bad = set(bad)
        self.held: frozenset[Trust] = frozenset()
        self.refusals = 0
        self.offers = CaRollout()

    def take(self, trusts: dict[str, Trust], proven: dict[str, Trust] = NOBODY) -> None:
        """As many offers as there are."""
        is_due = True
        while is_due:
            drawn = self.offers.draw(trusts, proven)
            if self.bad & set(drawn):
                self.refusals += 1
                is_due = bool(self.offers.refuse())
            else:
                self.held = frozenset(drawn)
                is_due = self.offers.accept()


def test_where_nothing_is_rejected_everything_is_offered_at_once() -> None:
    offers = CaRollout()
    assert offers.draw(wanted(B, A), NOBODY) == (A, B)
    assert not offers.accept()
    assert offers.draw(wanted(B, A, C), NOBODY) == (A, B, C)
    assert not offers.accept() and offers.refused == frozenset()


def test_one_that_is_rejected_does_not_hold_up_the_others() -> None:
    envoy = Envoy(B)
    envoy.take(wanted(A, B))
    assert envoy.held == {A} and envoy.offers.refused == {"b"}
    before = envoy.refusals
    envoy.take(wanted(A, B, C))
    assert envoy.held == {A, C}
    assert envoy.refusals == before, "what is known to be refused is not sent again"


def test_new_content_that_is_rejected_leaves_the_content_before_in_use() -> None:
    bad = trust("a", "bad")
    envoy = Envoy(bad)
    envoy.take(wanted(A, B))
    envoy.take(wanted(bad, B))
    assert envoy.held == {A, B} and envoy.offers.refused == {"a"}
    mended = trust("a", "mended")
    envoy.take(wanted(mended, B))
    assert envoy.held == {mended, B} and envoy.offers.refused == frozenset()


def test_who_is_not_wanted_any_more_is_dropped_also_where_it_was_rejected() -> None:
    envoy = Envoy(B)
    envoy.take(wanted(A, B))
    envoy.take(wanted(C))
    assert envoy.held == {C} and envoy.offers.refused == frozenset()


def test_a_new_stream_falls_back_on_what_an_envoy_took_before() -> None:
    """But not on what it rejects as well, and not where it takes what is wanted."""
    bad = trust("a", "bad")
    envoy = Envoy(bad)
    envoy.take(wanted(bad, B), proven=wanted(A, trust("b", "old")))
    assert envoy.held == {A, B} and envoy.offers.refused == {"a"}
    strict = Envoy(bad, A)
    strict.take(wanted(bad, B), proven=wanted(A))
    assert strict.held == {B} and strict.offers.refused == {"a"}


def test_where_something_else_is_rejected_no_profile_is_to_blame() -> None:
    """Envoy rejects the cluster also without any news in it: they are tried again with the next."""
    envoy = Envoy(B)
    envoy.take(wanted(A, B))
    envoy.bad = {A, B}
    envoy.take(wanted(A, C))
    assert envoy.offers.refused == frozenset()
    envoy.bad = set()
    envoy.take(wanted(A, B, C))
    assert envoy.held == {A, B, C}


@pytest.mark.parametrize("count", [1, 2, 3, 500])
def test_one_of_many_is_found_soon(count: int) -> None:
    trusts = [trust(f"{number:03}") for number in range(count)]
    for bad in (trusts[0], trusts[-1], trusts[count // 2]):
        envoy = Envoy(bad)
        envoy.take(wanted(*trusts))
        assert envoy.held == set(trusts) - {bad}
        assert envoy.refusals <= 1 + ceil(log2(count))


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("123")), max_size=40))
def test_whatever_comes_all_that_it_takes_is_held(changes: list[tuple[str, str]]) -> None:
    """Content "3" is rejected: then what was held before stays, and nothing else is touched."""
    envoy = Envoy(*(trust(name, "3") for name in "abcdefgh"))
    want: dict[str, Trust] = {}
    expected: dict[str, Trust] = {}
    for name, content in changes:
        if content == "2" and want.get(name) == trust(name, "2"):
            del want[name]
            expected.pop(name)
        else:
            want[name] = trust(name, content)
            if content != "3":
                expected[name] = want[name]
        envoy.take(want)
        assert wanted(*envoy.held) == expected
        assert envoy.offers.refused == {n for n, each in want.items() if each.ca_pem == "3"}
