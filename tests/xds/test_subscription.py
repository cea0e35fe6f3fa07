"""The rules of one discovery stream, fed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.xds.subscription import (
    ENDPOINT_TYPE,
    MAX_NAME_CHARS,
    MAX_NAMES,
    Acknowledged,
    Answer,
    Question,
    Refused,
    Subscription,
    SubscriptionError,
)


def opened(*names: str) -> Subscription:
    subscription = Subscription()
    assert subscription.ask(Question(names=names)) is None
    return subscription


def test_first_question_is_answered_at_any_version() -> None:
    """Also at version 0, and also when Envoy still holds versions of a former stream."""
    assert opened("llama").next_answer(0) == Answer(0, "1", ("llama",))


def test_a_leftover_nonce_opens_like_none() -> None:
    """Some clients begin a new stream with the nonce of the old one."""
    subscription = Subscription()
    subscription.ask(Question(names=("llama",), nonce="17"))
    assert subscription.next_answer(4) == Answer(4, "1", ("llama",))


def test_nobody_is_reported_unasked() -> None:
    """No question yet, or one without names: nothing to send."""
    assert Subscription().next_answer(1) is None
    assert opened().next_answer(1) is None


def test_one_answer_is_open_at_a_time() -> None:
    """Versions that come meanwhile are skipped: only the newest follows."""
    subscription = opened("llama")
    assert subscription.next_answer(1) is not None
    assert subscription.next_answer(2) is None
    assert subscription.next_answer(3) is None
    assert subscription.ask(Question(names=("llama",), nonce="1")) == Acknowledged(1)
    assert subscription.next_answer(3) == Answer(3, "2", ("llama",))


def test_the_same_version_is_not_sent_twice() -> None:
    subscription = opened("llama")
    subscription.next_answer(1)
    subscription.ask(Question(names=("llama",), nonce="1"))
    assert subscription.next_answer(1) is None


def test_a_rejection_does_not_loop() -> None:
    """The refused version is not sent again; the next one is."""
    subscription = opened("llama")
    subscription.next_answer(1)
    refusal = Question(names=("llama",), nonce="1", error="malformed")
    assert subscription.ask(refusal) == Refused(1, "malformed")
    assert subscription.next_answer(1) is None
    assert subscription.next_answer(2) == Answer(2, "2", ("llama",))


def test_a_repeated_acknowledgement_is_no_event() -> None:
    subscription = opened("llama")
    subscription.next_answer(1)
    subscription.ask(Question(names=("llama",), nonce="1"))
    assert subscription.ask(Question(names=("llama",), nonce="1")) is None
    assert subscription.next_answer(1) is None


def test_a_stale_nonce_is_ignored() -> None:
    """It speaks of an older answer: neither acknowledgement nor names count."""
    subscription = opened("llama")
    subscription.next_answer(1)
    subscription.ask(Question(names=("llama",), nonce="1"))
    subscription.next_answer(2)
    assert subscription.ask(Question(names=("other",), nonce="1")) is None
    assert subscription.names == ("llama",)
    assert subscription.next_answer(3) is None
    assert subscription.ask(Question(names=("llama",), nonce="2")) == Acknowledged(2)


def test_a_new_name_is_answered_at_once() -> None:
    """Without waiting for a new version; a dropped name needs no answer."""
    subscription = opened("llama")
    subscription.next_answer(1)
    assert subscription.ask(Question(names=("llama", "b"), nonce="1")) == Acknowledged(1)
    assert subscription.next_answer(1) == Answer(1, "2", ("llama", "b"))
    subscription.ask(Question(names=("b",), nonce="2"))
    assert subscription.next_answer(1) is None
    assert subscription.next_answer(2) == Answer(2, "3", ("b",))


def test_asking_again_without_a_nonce_starts_over() -> None:
    """Also while an answer is open."""
    subscription = opened("llama")
    subscription.next_answer(1)
    subscription.ask(Question(names=("llama",)))
    assert subscription.next_answer(1) == Answer(1, "2", ("llama",))


def test_a_doubled_name_is_answered_once() -> None:
    assert opened("llama", "llama").next_answer(1) == Answer(1, "1", ("llama",))


def test_other_types_are_rejected_by_name() -> None:
    """The error names what was asked and what is served; an empty type means this service's."""
    clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    with pytest.raises(SubscriptionError, match=r"Cluster.*only .*ClusterLoadAssignment"):
        Subscription().ask(Question(names=("llama",), type_url=clusters))
    assert Subscription().ask(Question(names=("llama",), type_url="")) is None


def test_names_are_bounded() -> None:
    names = tuple(str(number) for number in range(MAX_NAMES + 1))
    with pytest.raises(SubscriptionError, match="at most"):
        Subscription().ask(Question(names=names))
    assert Subscription().ask(Question(names=("x" * MAX_NAME_CHARS,))) is None
    with pytest.raises(SubscriptionError, match="a name of 1001 characters"):
        Subscription().ask(Question(names=("llama", "x" * (MAX_NAME_CHARS + 1))))


STEPS = st.sampled_from(("publish", "send", "accept", "refuse", "stale", "rename", "reopen"))


@given(st.lists(STEPS, max_size=60))
@settings(deadline=None)
def test_any_life_converges(steps: list[str]) -> None:
    """Whatever happens, an Envoy that then acknowledges what comes has the newest version.

    And it needs at most two answers for it: the open one and the newest.
    """
    subscription = opened("a")
    names: tuple[str, ...] = ("a",)
    version, nonce = 0, ""
    has_open = False
    for step in steps:
        match step:
            case "publish":
                version += 1
            case "send":
                answer = subscription.next_answer(version)
                assert answer is None or not has_open
                if answer is not None:
                    has_open, nonce = True, answer.nonce
            case "accept" | "refuse" if has_open:
                error = "no" if step == "refuse" else None
                event = subscription.ask(Question(names=names, nonce=nonce, error=error))
                assert isinstance(event, Acknowledged if error is None else Refused)
                has_open = False
            case "stale" if nonce:
                assert subscription.ask(Question(names=("x",), nonce="0")) is None
            case "rename" if nonce:
                names = (*names, str(len(names)))
                subscription.ask(Question(names=names, nonce=nonce))
                has_open = False
            case "reopen":
                subscription.ask(Question(names=names, type_url=ENDPOINT_TYPE))
                has_open = False
    version += 1
    if has_open:
        subscription.ask(Question(names=names, nonce=nonce))
    final = subscription.next_answer(version)
    assert final is not None
    assert (final.version, final.names) == (version, names)
    assert subscription.ask(Question(names=names, nonce=final.nonce)) == Acknowledged(version)
    assert subscription.next_answer(version) is None
