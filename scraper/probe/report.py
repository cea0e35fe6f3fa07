"""The result of a scrape, as an observation for the core. Pure.

answer                       | status
-----------------------------|-----------------------------------------------------------
one that could be used       | ready or asleep, with slots, models and what to mend
503                          | loading
another status, or garbled   | failed
none in time, or broken off  | failed
no connection                | unreachable
"""

from __future__ import annotations

from typing import assert_never

from extproc.core.observation import Issue, Observation, ScrapeStatus
from scraper.llama.client import Answer, Failure, FailureKind
from scraper.llama.router import RouterModels
from scraper.llama.slots_request import SlotCounts
from scraper.probe import issues
from scraper.probe.server_identity import ServerIdentity
from scraper.target import EndpointTarget


class Report:
    """Puts into observations what one server is known to be at the moment of each."""

    def __init__(self, target: EndpointTarget, facts: ServerIdentity, router: RouterModels) -> None:
        self._target = target
        self._facts = facts
        self._router = router

    def observe(
        self,
        sign: Answer | Failure | SlotCounts,
        status: ScrapeStatus,
        busy_slots: int | None = None,
        also: Issue | None = None,
    ) -> Observation:
        """The observation whose time is that of `sign`; `also` is what to mend besides."""
        is_router = self._facts.is_router
        told_slots = self._router.slots if is_router else self._facts.slots
        slots = told_slots if self._target.slots is None else self._target.slots
        is_telling = status is ScrapeStatus.READY or status is ScrapeStatus.ASLEEP
        return Observation(
            address=self._target.address,
            began_at=sign.began_at,
            answered_at=sign.answered_at,
            status=status,
            slots=slots if is_telling else None,
            busy_slots=busy_slots,
            models=self._router.readings() if is_router else self._facts.models,
            issues=tuple(self._issues(told_slots if is_telling else None, also)),
            instance=self._facts.instance,
            slot_readings=sign.busy if isinstance(sign, SlotCounts) else (),
            context_tokens=sign.context_tokens if isinstance(sign, SlotCounts) else None,
            adapters=self._facts.adapters,
            awaits_adapters=self._facts.awaits_adapters,
        )

    def useless(self, answer: Answer | Failure, path: str) -> Observation:
        """The observation for an unusable response to GET `path`."""
        if isinstance(answer, Answer):
            if answer.status == 503:
                return self.observe(answer, ScrapeStatus.LOADING)
            message = f"GET {path} was answered with status {answer.status}"
            return self.observe(answer, ScrapeStatus.FAILED, also=issues.bad_answer(message))
        match answer.kind:
            case FailureKind.UNREACHABLE:
                unreachable = issues.unreachable(answer.message)
                return self.observe(answer, ScrapeStatus.UNREACHABLE, also=unreachable)
            case FailureKind.TIMED_OUT | FailureKind.BROKEN:
                return self.observe(
                    answer, ScrapeStatus.FAILED, also=issues.no_answer(answer.message)
                )
            case FailureKind.UNUSABLE:
                return self.observe(
                    answer, ScrapeStatus.FAILED, also=issues.bad_answer(answer.message)
                )
            case _:
                assert_never(answer.kind)

    def _issues(self, told_slots: int | None, also: Issue | None) -> list[Issue]:
        found = [issue for issue in (self._facts.hidden, also) if issue is not None]
        if self._facts.is_router:
            found.extend(self._router.issues())
        configured = self._target.slots
        if configured is not None and told_slots is not None and told_slots < configured:
            found.append(issues.slots_override_too_large(configured, told_slots))
        return found
