"""Claims about extproc/runners/llama_server/report.py: pure, so answers are made by hand."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from extproc.runners import issues
from extproc.runners.client import Answer, Failure, FailureKind
from extproc.runners.llama_server.report import Report
from extproc.runners.llama_server.router import RouterModels
from extproc.runners.llama_server.server_identity import ServerIdentity
from extproc.runners.llama_server.slots_request import SlotCounts
from extproc.runners.probe import SleepTrial
from extproc.runners.target import EndpointTarget

ADDRESS = Address("10.0.0.1", 8080)


def report(identity: ServerIdentity | None = None, slots: int | None = None) -> Report:
    target = EndpointTarget(address=ADDRESS, slots=slots)
    return Report(target, identity or ServerIdentity(), RouterModels(SleepTrial()))


def answer(status: int = 200) -> Answer:
    return Answer(
        status=status, body=b"secret", began_at=1.0, answered_at=1.5, is_first_on_connection=False
    )


def failure(kind: FailureKind) -> Failure:
    return Failure(kind=kind, message="in our words", began_at=1.0, answered_at=1.5)


def codes(observation: Observation) -> list[str]:
    return [issue.code for issue in observation.issues]


@pytest.mark.parametrize(
    ("told", "status", "code"),
    [
        (answer(503), ScrapeStatus.LOADING, []),
        (answer(500), ScrapeStatus.FAILED, ["bad-answer"]),
        (failure(FailureKind.UNREACHABLE), ScrapeStatus.UNREACHABLE, ["unreachable"]),
        (failure(FailureKind.TIMED_OUT), ScrapeStatus.FAILED, ["no-answer"]),
        (failure(FailureKind.BROKEN), ScrapeStatus.FAILED, ["no-answer"]),
        (failure(FailureKind.UNUSABLE), ScrapeStatus.FAILED, ["bad-answer"]),
    ],
)
def test_answers_that_cannot_be_used(
    told: Answer | Failure, status: ScrapeStatus, code: list[str]
) -> None:
    """Each has its status and its issue, tells no slots, and quotes nothing that came."""
    found = report(slots=4).useless(told, "/props")
    assert (found.status, codes(found)) == (status, code)
    assert (found.slots, found.busy_slots) == (None, None)
    assert (found.began_at, found.answered_at) == (1.0, 1.5)
    assert "secret" not in repr(found)


def test_more_slots_than_a_server_has_are_an_issue() -> None:
    """Fewer are the operator's choice. The core applies it; what is reported is the server's."""
    identity = ServerIdentity()
    identity.count(
        SlotCounts(
            began_at=0.0,
            answered_at=0.5,
            slots=2,
            busy_slots=1,
            newest_task=None,
            is_first_on_connection=False,
            by_model=None,
        )
    )
    more = report(identity, slots=4).observe(answer(), ScrapeStatus.READY, busy_slots=1)
    assert (more.slots, codes(more)) == (2, ["slots-override-too-large"])
    fewer = report(identity, slots=1).observe(answer(), ScrapeStatus.READY, busy_slots=1)
    assert (fewer.slots, codes(fewer)) == (2, [])
    loading = report(identity, slots=4).observe(answer(), ScrapeStatus.LOADING)
    assert (loading.slots, codes(loading)) == (None, [])


def test_all_that_is_wrong_is_reported_at_once() -> None:
    """That it hides its slots, and what this look found besides."""
    identity = ServerIdentity()
    identity.hidden = issues.slots_disabled()
    found = report(identity).observe(answer(), ScrapeStatus.READY, also=issues.slow_slots(2.0))
    assert codes(found) == ["slots-disabled", "slow-slots"]
