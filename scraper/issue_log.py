"""Logs each issue of an endpoint once when it begins and once when it ends.

An issue that comes and goes at every scrape is one issue: it ends only after `CLEAR_SCRAPES`
scrapes without it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from extproc.core.observation import Issue, Observation, ScrapeStatus

logger = logging.getLogger("coxswain.scraper")
CLEAR_SCRAPES = 3
SHOWN_BY_ISSUES = frozenset({ScrapeStatus.UNREACHABLE, ScrapeStatus.FAILED})


class IssueLog:
    """The current issues of one endpoint. Its log lines never contain data of a response."""

    def __init__(self, name: Callable[[], str], *, may_be_off: bool = False) -> None:
        """`name` gives the name of the endpoint at any time. That its machine `may_be_off` makes it
        no warning if it answers no scrape."""
        self._name = name
        self._may_be_off = may_be_off
        self._clear_scrapes: dict[str, int] = {}
        self._crashed: set[str] = set()
        self._status: ScrapeStatus | None = None

    def record(self, observation: Observation) -> None:
        """Log the changes since the last scrape."""
        status = observation.status
        if status is not self._status and status not in SHOWN_BY_ISSUES:
            logger.info("endpoint %s: %s", self._name(), status.value)
            self._status = status
        is_off = self._may_be_off and status in SHOWN_BY_ISSUES
        self._record_issues(observation.issues, logging.INFO if is_off else logging.WARNING)

    def _record_issues(self, issues: Iterable[Issue], level: int) -> None:
        present = {issue.code: issue for issue in issues}
        for code, issue in present.items():
            if code not in self._clear_scrapes:
                logger.log(level, "endpoint %s: %s", self._name(), issue)
            self._clear_scrapes[code] = 0
        for code in self._clear_scrapes.keys() - present.keys():
            self._clear_scrapes[code] += 1
            if self._clear_scrapes[code] >= CLEAR_SCRAPES:
                del self._clear_scrapes[code]
                logger.info("endpoint %s: %s is over", self._name(), code)

    @contextmanager
    def watch(self, what: str) -> Iterator[None]:
        """Log an exception of `what`, code of ours: one line with its traceback until it works
        again."""
        try:
            yield
        except Exception as error:
            if what not in self._crashed:
                self._crashed.add(what)
                logger.error("endpoint %s: %s failed", self._name(), what, exc_info=error)
            raise
        else:
            if what in self._crashed:
                self._crashed.discard(what)
                logger.info("endpoint %s: %s works again", self._name(), what)
