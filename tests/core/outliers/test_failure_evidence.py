"""Claims about extproc/core/outliers/failure_evidence.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.outliers.failure_evidence import (
    CONNECTION,
    KNOWN_DOUBTS,
    MAX_FAILURES,
    MAX_KINDS,
    MAX_REQUESTS,
    NEW_DOUBTS,
    FailedRequests,
    Failure,
    FailureEvidence,
    Fault,
    RequestKind,
    Running,
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

    def count(
        self, now: float = 1000.0, since: float = 0.0, running: tuple[Running, ...] = ()
    ) -> int:
        return len(self.evidence.counted(self.requests, since, now, running))


@pytest.fixture
def evidence() -> Evidence:
    return Evidence()


def test_failures_in_a_row_count(evidence: Evidence) -> None:
    for sent_at in (1.0, 2.0, 3.0):
        evidence.fail(sent_at)
    assert evidence.count() == 3
    assert evidence.count(since=2.0) == 2


def test_a_success_clears_what_was_sent_before_it(evidence: Evidence) -> None:
    """And not what was sent later: an old stream that ends well does not show that the server still
    works."""
    evidence.fail(1.0)
    evidence.fail(3.0)
    evidence.evidence.responded(CHAT, 2.0, 2.0)
    assert evidence.count() == 1
    evidence.evidence.responded(CHAT, 3.0, 3.0)
    assert evidence.count() == 0


def test_headers_do_not_clear_broken_answers(evidence: Evidence) -> None:
    evidence.fail(1.0, fault=Fault.BROKEN_ANSWER)
    evidence.evidence.responded(CHAT, 2.0, 2.0)
    assert evidence.count() == 1
    evidence.evidence.served(CHAT, 2.0)
    assert evidence.count() == 0


def test_a_kind_that_alone_fails_is_to_blame(evidence: Evidence) -> None:
    evidence.fail(1.0, GRAMMAR)
    evidence.evidence.responded(CHAT, 2.0, 2.0)
    for sent_at in range(3, 3 + 3 * MAX_FAILURES):
        evidence.fail(sent_at, GRAMMAR)
    assert evidence.count() == 0


def test_a_kind_that_worked_before_is_given_less_time(evidence: Evidence) -> None:
    """The server may have broken since."""
    evidence.evidence.responded(GRAMMAR, 1.0, 1.0)
    evidence.evidence.responded(CHAT, 2.0, 2.0)
    for number in range(KNOWN_DOUBTS - 1):
        evidence.fail(3.0 + number, GRAMMAR)
    assert evidence.count(now=9.0) == 0
    evidence.fail(9.0, GRAMMAR)
    assert evidence.count(now=9.0) == KNOWN_DOUBTS


def test_a_kind_that_runs_is_given_time_to_work(evidence: Evidence) -> None:
    """Nothing has worked here yet: the first responses take longer than the failures."""
    running = (Running(CHAT, 1.0),)
    for number in range(NEW_DOUBTS - 1):
        evidence.fail(1.0 + number / 100, GRAMMAR)
    assert evidence.count(now=1.1, running=running) == 0
    assert evidence.count(now=1.1) == NEW_DOUBTS - 1
    evidence.fail(1.1, CHAT)
    assert evidence.count(now=1.1, running=running) == NEW_DOUBTS, "it fails, too"


def test_the_kind_itself_is_no_other_kind(evidence: Evidence) -> None:
    evidence.evidence.responded(GRAMMAR, 1.0, 1.0)
    for sent_at in (2.0, 3.0, 4.0):
        evidence.fail(sent_at, GRAMMAR)
    assert evidence.count(now=4.0) == 3


@pytest.mark.parametrize(
    ("kind", "sent_at", "explains"),
    [
        (CHAT, 2.0, True),
        (CHAT, 0.5, False),  # it was sent before the first failure
        (CHAT, 9.8, False),  # it may still fail as they did
        (GRAMMAR, 2.0, False),
    ],
)
def test_a_request_of_another_kind_that_runs_longer_explains_failures(
    evidence: Evidence, kind: RequestKind, sent_at: float, explains: bool
) -> None:
    for number in range(NEW_DOUBTS):
        evidence.fail(1.0 + number, GRAMMAR)
    running = (Running(kind, sent_at),)
    assert evidence.count(now=10.0, running=running) == (0 if explains else NEW_DOUBTS)
    assert evidence.count(now=10.0) == NEW_DOUBTS


def test_a_kind_that_fails_itself_excuses_nothing(evidence: Evidence) -> None:
    evidence.evidence.responded(CHAT, 0.5, 0.5)
    evidence.fail(1.0, GRAMMAR)
    assert evidence.count(now=2.0) == 0
    evidence.fail(3.0, CHAT)
    evidence.fail(4.0, GRAMMAR)
    assert evidence.count(now=5.0) == 3


def test_a_kind_that_is_to_blame_does_not_count_for_others(evidence: Evidence) -> None:
    """Until it worked again."""
    evidence.fail(1.0, GRAMMAR)
    evidence.evidence.responded(CHAT, 2.0, 2.0)
    evidence.fail(3.0, GRAMMAR)
    evidence.fail(4.0, CHAT)
    assert evidence.count() == 1
    evidence.evidence.responded(GRAMMAR, 3.5, 3.5)
    evidence.fail(6.0, GRAMMAR)
    assert evidence.count() == 2


def test_a_new_kind_is_given_time_if_another_works(evidence: Evidence) -> None:
    """Before a response of the other kind can come again, some of the new one have failed; but
    without other requests it counts in the end."""
    evidence.evidence.responded(CHAT, 1.0, 1.0)
    for number in range(NEW_DOUBTS - 1):
        evidence.fail(2.0 + number, GRAMMAR)
    assert evidence.count(now=12.0) == 0
    evidence.fail(12.0, GRAMMAR)
    assert evidence.count(now=12.0) == NEW_DOUBTS


def test_a_kind_that_works_elsewhere_is_given_no_time(evidence: Evidence) -> None:
    """The endpoint is to blame. One that other kinds have left behind is still excused."""
    there = FailureEvidence()
    evidence.evidence.responded(CHAT, 1.0, 1.0)
    for sent_at in (2.0, 3.0, 4.0):
        evidence.fail(sent_at, GRAMMAR)

    def counted() -> int:
        return len(evidence.evidence.counted(evidence.requests, 0.0, 5.0, (), there.works))

    there.responded(GRAMMAR, 0.5, 1.9)  # before
    assert counted() == 0
    there.responded(GRAMMAR, 0.5, 2.5)
    assert counted() == 3
    there.failed(Failure(GRAMMAR, Fault.SERVER_ERROR, 0, 3.0, 0.1))  # it fails there, too
    assert counted() == 0
    there.responded(GRAMMAR, 4.0, 4.5)
    assert counted() == 3
    evidence.evidence.responded(CHAT, 4.0, 4.5)
    assert counted() == 0


def test_a_success_long_ago_is_no_proof(evidence: Evidence) -> None:
    evidence.evidence.responded(CHAT, 1.0, 1.0)
    for sent_at in (101.0, 102.0, 103.0):
        evidence.fail(sent_at, GRAMMAR)
    assert evidence.count(now=103.0) == 3


def test_a_rejected_connection_is_explained_by_no_kind_and_cleared_by_any(
    evidence: Evidence,
) -> None:
    evidence.evidence.responded(CHAT, 1.0, 1.0)
    for sent_at in (2.0, 3.0, 4.0):
        evidence.fail(sent_at, CONNECTION, Fault.UNAVAILABLE)
    assert evidence.count(now=4.0) == 3
    evidence.evidence.responded(GRAMMAR, 3.0, 3.0)
    assert evidence.count(now=4.0) == 1


def test_the_same_request_counts_once_until_it_succeeds_somewhere(evidence: Evidence) -> None:
    """A client that repeats a bad request causes no ejection; a server that fails requests which
    others serve is detected, also by equal requests."""
    for sent_at in (1.0, 2.0, 3.0):
        evidence.fail(sent_at, fingerprint=7)
    assert evidence.count() == 1
    evidence.requests.succeeded(7)
    assert evidence.count() == 3


def test_a_request_that_fails_everywhere_is_to_blame(evidence: Evidence) -> None:
    evidence.fail(1.0, fingerprint=7)
    evidence.requests.failed(7, THERE)
    assert evidence.count() == 0
    evidence.requests.succeeded(7)
    assert evidence.count() == 1


def test_all_of_it_is_bounded(evidence: Evidence) -> None:
    for number in range(3000):
        kind = RequestKind(f"/{number}", None)
        evidence.evidence.responded(kind, float(number), float(number))
        evidence.fail(float(number), kind, fingerprint=number + 1)
        evidence.requests.succeeded(number + 1)
    assert len(evidence.evidence.failures) <= MAX_FAILURES
    assert len(evidence.evidence._worked_at) <= MAX_KINDS
    assert len(evidence.evidence._failing_since) <= MAX_KINDS
    assert len(evidence.requests._failed_at) <= MAX_REQUESTS
    assert len(evidence.requests._good) <= MAX_REQUESTS


def test_an_answer_without_failures_changes_nothing(evidence: Evidence) -> None:
    """Also if its headers came late: what fails after it counts."""
    evidence.evidence.served(CHAT, 1.0)
    evidence.evidence.responded(CHAT, 1.0, 1.0)
    evidence.evidence.responded(CHAT, 0.5, 0.5)
    evidence.fail(0.7)
    assert evidence.count() == 1
