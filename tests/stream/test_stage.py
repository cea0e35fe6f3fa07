"""Claims about extproc/stream/stage.py: what an exchange is called at each stage."""

from __future__ import annotations

import pytest

from extproc.core.exchange_record import Outcome
from extproc.core.exchange_registry import ExchangeState
from extproc.stream.stage import REPLIED, ROUTED, Stage, outcome_at, state_at


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("is_answered", [False, True])
def test_every_stage_has_a_public_state(stage: Stage, is_answered: bool) -> None:
    """Only while a slot is held does it matter whether the response began."""
    state = state_at(stage, is_answered=is_answered)
    if stage is Stage.LEASED:
        assert state is (ExchangeState.RESPONDING if is_answered else ExchangeState.RUNNING)
    else:
        assert state is state_at(stage, is_answered=not is_answered)


@pytest.mark.parametrize(
    ("is_cut", "is_unsent", "outcome"),
    [
        (False, False, Outcome.SERVED),
        (True, False, Outcome.BROKEN),
        (True, True, Outcome.WITHDRAWN),
        (False, True, Outcome.WITHDRAWN),
    ],
)
def test_a_request_with_a_slot_was_served_or_not(
    is_cut: bool, is_unsent: bool, outcome: Outcome
) -> None:
    """Whose destination never left the picker was not broken by a server."""
    assert outcome_at(Stage.LEASED, is_cut=is_cut, is_unsent=is_unsent) is outcome


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(
    ("stage", "outcome"),
    [
        (Stage.QUEUED, Outcome.WITHDRAWN),
        (Stage.READING, Outcome.WITHDRAWN),
        (Stage.REJECTED, Outcome.REJECTED),
        (Stage.ANSWERED, Outcome.PASSED),
        (Stage.PASSING, Outcome.PASSED),
        (Stage.NEW, Outcome.PASSED),
    ],
)
def test_without_a_slot_it_does_not_matter_how_the_stream_ended(
    stage: Stage, outcome: Outcome, is_cut: bool
) -> None:
    """A client may leave at any moment: nothing of a server broke."""
    assert outcome_at(stage, is_cut=is_cut, is_unsent=False) is outcome


def test_an_exchange_ends_once() -> None:
    with pytest.raises(KeyError):
        outcome_at(Stage.ENDED, is_cut=False, is_unsent=False)


def test_no_exchange_is_both_sent_to_a_server_and_answered_by_the_picker() -> None:
    assert not REPLIED & set(ROUTED)
