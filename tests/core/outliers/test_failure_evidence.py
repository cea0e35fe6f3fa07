"""Claims about extproc/core/outliers/failure_evidence.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.outliers.failure_evidence import (
    CONNECTION,
    DOUBTS,
    MAX_FAILURES,
    MAX_KINDS,
    MAX_REQUESTS,
    FailedRequests,
    Failure,
    FailureEvidence,
    Fault,
    RequestKind,
)

CHAT = RequestKind("/chat", None)
GRAMMAR = RequestKind("/chat grammar", None)
HERE, THERE = Address("10.0.0.1", 8000), Address("10.0.0.2", 8000)


class Evidence:
    """Evidence about HERE with short names."""

    def __init__(self) -> None:
        self.evidence = FailureEvidence()
        self.requests = FailedRequests()

    def fail(
        self,
        sent_at: float,
        kind: RequestKind = CHAT,
        fault: Fault = Fault.SERVER_ERROR,
        fingerprint: int = 0,
    ) -> None:
        self.requests.failed(fingerprint, HERE)
        self.evidence.failed(Failure(kind, fault, fingerprint, sent_at, 0.01))

    def count(self, now: float = 1000.0, since: float = 0.0) -> int:
        return len(self.evidence.counted(self.requests, since, now))


@pytest.fixture
def told() -> Evidence:
    return Evidence()


def test_failures_in_a_row_count(told: Evidence) -> None:
    for sent_at in (1.0, 2.0, 3.0):
        told.fail(sent_at)
    assert told.count() == 3
    assert told.count(since=2.0) == 2


def test_a_success_clears_what_was_sent_before_it(told: Evidence) -> None:
    """And not what was sent later: an old stream that ends well does not show that the server still
    works."""
    told.fail(1.0)
    told.fail(3.0)
    told.evidence.responded(CHAT, 2.0)
    assert told.count() == 1
    told.evidence.responded(CHAT, 3.0)
    assert told.count() == 0


def test_headers_do_not_clear_broken_answers(told: Evidence) -> None:
    told.fail(1.0, fault=Fault.BROKEN_ANSWER)
    told.evidence.responded(CHAT, 2.0)
    assert told.count() == 1
    told.evidence.served(CHAT, 2.0)
    assert told.count() == 0


def test_a_kind_that_alone_fails_is_to_blame(told: Evidence) -> None:
    told.fail(1.0, GRAMMAR)
    told.evidence.responded(CHAT, 2.0)
    for sent_at in range(3, 3 + 3 * MAX_FAILURES):
        told.fail(sent_at, GRAMMAR)
    assert told.count() == 0


def test_a_kind_that_worked_before_the_failures_excuses_nothing(told: Evidence) -> None:
    """The server may have broken since."""
    told.evidence.responded(GRAMMAR, 1.0)
    told.evidence.responded(CHAT, 2.0)
    for sent_at in (3.0, 4.0, 5.0):
        told.fail(sent_at, GRAMMAR)
    assert told.count(now=6.0) == 3


def test_a_kind_that_fails_itself_excuses_nothing(told: Evidence) -> None:
    told.evidence.responded(CHAT, 0.5)
    told.fail(1.0, GRAMMAR)
    assert told.count(now=2.0) == 0
    told.fail(3.0, CHAT)
    told.fail(4.0, GRAMMAR)
    assert told.count(now=5.0) == 3


def test_a_kind_that_is_to_blame_does_not_count_for_others(told: Evidence) -> None:
    """Until it worked again."""
    told.fail(1.0, GRAMMAR)
    told.evidence.responded(CHAT, 2.0)
    told.fail(3.0, GRAMMAR)
    told.fail(4.0, CHAT)
    assert told.count() == 1
    told.evidence.responded(GRAMMAR, 3.5)
    told.fail(6.0, GRAMMAR)
    assert told.count() == 2


def test_a_new_kind_is_given_time_if_another_works(told: Evidence) -> None:
    """Before a response of the other kind can come again, some of the new one have failed; but
    without other requests it counts in the end."""
    told.evidence.responded(CHAT, 1.0)
    for number in range(DOUBTS - 1):
        told.fail(2.0 + number, GRAMMAR)
    assert told.count(now=12.0) == 0
    told.fail(12.0, GRAMMAR)
    assert told.count(now=12.0) == DOUBTS


def test_a_success_long_ago_is_no_proof(told: Evidence) -> None:
    told.evidence.responded(CHAT, 1.0)
    for sent_at in (101.0, 102.0, 103.0):
        told.fail(sent_at, GRAMMAR)
    assert told.count(now=103.0) == 3


def test_a_refused_connection_is_explained_by_no_kind_and_cleared_by_any(told: Evidence) -> None:
    told.evidence.responded(CHAT, 1.0)
    for sent_at in (2.0, 3.0, 4.0):
        told.fail(sent_at, CONNECTION, Fault.UNAVAILABLE)
    assert told.count(now=4.0) == 3
    told.evidence.responded(GRAMMAR, 3.0)
    assert told.count(now=4.0) == 1


def test_the_same_request_counts_once_until_it_succeeds_somewhere(told: Evidence) -> None:
    """A client that repeats a bad request causes no ejection; a server that fails requests which
    others serve is detected, also by equal requests."""
    for sent_at in (1.0, 2.0, 3.0):
        told.fail(sent_at, fingerprint=7)
    assert told.count() == 1
    told.requests.succeeded(7)
    assert told.count() == 3


def test_a_request_that_fails_everywhere_is_to_blame(told: Evidence) -> None:
    told.fail(1.0, fingerprint=7)
    told.requests.failed(7, THERE)
    assert told.count() == 0
    told.requests.succeeded(7)
    assert told.count() == 1


def test_all_of_it_is_bounded(told: Evidence) -> None:
    for number in range(3000):
        kind = RequestKind(f"/{number}", None)
        told.evidence.responded(kind, float(number))
        told.fail(float(number), kind, fingerprint=number + 1)
        told.requests.succeeded(number + 1)
    assert len(told.evidence.failures) <= MAX_FAILURES
    assert len(told.evidence._worked_at) <= MAX_KINDS
    assert len(told.evidence._failing_since) <= MAX_KINDS
    assert len(told.requests._failed_at) <= MAX_REQUESTS
    assert len(told.requests._good) <= MAX_REQUESTS
