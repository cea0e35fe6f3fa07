"""Each anomaly is one line when it begins and one when it ends."""

from __future__ import annotations

import logging

import pytest

from extproc.core.address import Address
from extproc.core.observation import Issue, Observation, ScrapeStatus
from extproc.runners import issues
from scraper.issue_log import CLEAR_SCRAPES, IssueLog

ADDRESS = Address("127.0.0.1", 8080)


def saw(status: ScrapeStatus, *found: Issue) -> Observation:
    return Observation(address=ADDRESS, began_at=0, answered_at=0, status=status, issues=found)


@pytest.fixture
def issue_log(caplog: pytest.LogCaptureFixture) -> IssueLog:
    caplog.set_level(logging.INFO, "coxswain.scraper")
    return IssueLog(lambda: str(ADDRESS))


def test_one_line_begins_and_one_ends(
    issue_log: IssueLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        issue_log.record(saw(ScrapeStatus.UNREACHABLE, issues.unreachable("refused")))
    for _ in range(50):
        issue_log.record(saw(ScrapeStatus.READY))
    lines = [(record.levelname, record.getMessage().split("; ")[0]) for record in caplog.records]
    assert lines == [
        ("WARNING", "endpoint 127.0.0.1:8080: unreachable: refused"),
        ("INFO", "endpoint 127.0.0.1:8080: ready"),
        ("INFO", "endpoint 127.0.0.1:8080: unreachable is over"),
    ]


def test_what_comes_and_goes_is_one_anomaly(
    issue_log: IssueLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        issue_log.record(saw(ScrapeStatus.READY, issues.slow_slots(2.0)))
        for _ in range(CLEAR_SCRAPES - 1):
            issue_log.record(saw(ScrapeStatus.READY))
    assert len([r for r in caplog.records if "slow-slots" in r.getMessage()]) == 1


def test_a_crash_is_reported_once_with_its_traceback(
    issue_log: IssueLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        with pytest.raises(ZeroDivisionError), issue_log.watch("the scrape"):
            raise ZeroDivisionError
    for _ in range(2):
        with issue_log.watch("the scrape"):
            pass
    first, last = caplog.records
    assert first.levelname == "ERROR" and first.exc_info is not None
    assert last.getMessage() == "endpoint 127.0.0.1:8080: the scrape works again"


def test_a_machine_that_may_be_off_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """What is wrong with its server while it answers is one."""
    caplog.set_level(logging.INFO, "coxswain.scraper")
    issue_log = IssueLog(lambda: str(ADDRESS), may_be_off=True)
    issue_log.record(saw(ScrapeStatus.UNREACHABLE, issues.unreachable("refused")))
    issue_log.record(saw(ScrapeStatus.READY, issues.slow_slots(2.0)))
    levels = {record.getMessage().split(": ")[1]: record.levelname for record in caplog.records}
    assert levels == {"unreachable": "INFO", "ready": "INFO", "slow-slots": "WARNING"}
