"""The result of a scrape, as an observation for the core. Pure.

response                     | status
-----------------------------|-----------------------------------------------------------
usable                       | ready or asleep, with slots, models and issues
503                          | loading
another status, or invalid   | failed
none in time, or cut off     | failed
no connection                | unreachable
"""

from extproc.core.observation import Issue, Observation, ScrapeStatus
from scraper.llama.client import Answer, Failure, FailureKind
from scraper.llama.router import RouterModels
from scraper.llama.slots_request import SlotCounts
from scraper.probe import issues
from scraper.probe.server_identity import ServerIdentity
from scraper.target import EndpointTarget

_FAILURES = {
    FailureKind.UNREACHABLE: (ScrapeStatus.UNREACHABLE, issues.unreachable),
    FailureKind.TIMED_OUT: (ScrapeStatus.FAILED, issues.no_answer),
    FailureKind.BROKEN: (ScrapeStatus.FAILED, issues.no_answer),
    FailureKind.UNUSABLE: (ScrapeStatus.FAILED, issues.bad_answer),
}


class Report:
    """Makes observations from the known state of one server."""

    def __init__(
        self, target: EndpointTarget, identity: ServerIdentity, router: RouterModels
    ) -> None:
        self._target = target
        self._identity = identity
        self._router = router

    def observe(
        self,
        response: Answer | Failure | SlotCounts,
        status: ScrapeStatus,
        busy_slots: int | None = None,
        also: Issue | None = None,
    ) -> Observation:
        """An observation with the times of `response`; `also` is a further issue."""
        is_router = self._identity.is_router
        reported_slots = self._router.slots if is_router else self._identity.slots
        is_responding = status is ScrapeStatus.READY or status is ScrapeStatus.ASLEEP
        slots = reported_slots if is_responding else None
        context_tokens = response.context_tokens if isinstance(response, SlotCounts) else None
        context = self._identity.context
        return Observation(
            address=self._target.address,
            began_at=response.began_at,
            answered_at=response.answered_at,
            status=status,
            slots=slots,
            busy_slots=busy_slots,
            models=self._router.readings() if is_router else self._identity.models,
            issues=tuple(self._issues(slots, also)),
            instance=self._identity.instance,
            slot_readings=response.busy if isinstance(response, SlotCounts) else (),
            ended_tasks=response.ended if isinstance(response, SlotCounts) else (),
            context_tokens=context_tokens,
            shared_tokens=None if context is None else context.shared_tokens(context_tokens),
            adapters=self._identity.adapters,
            awaits_adapters=self._identity.awaits_adapters,
            router=self._router.reading if is_router else None,
        )

    def useless(self, answer: Answer | Failure, path: str) -> Observation:
        """The observation for an unusable response to GET `path`."""
        if isinstance(answer, Answer):
            if answer.status == 503:
                return self.observe(answer, ScrapeStatus.LOADING)
            message = f"GET {path} was answered with status {answer.status}"
            return self.observe(answer, ScrapeStatus.FAILED, also=issues.bad_answer(message))
        status, issue = _FAILURES[answer.kind]
        return self.observe(answer, status, also=issue(answer.message))

    def _issues(self, reported_slots: int | None, also: Issue | None) -> list[Issue]:
        found = [issue for issue in (self._identity.hidden, also) if issue is not None]
        if self._identity.is_router:
            found.extend(self._router.issues())
        configured = self._target.slots
        if configured is not None and reported_slots is not None and reported_slots < configured:
            found.append(issues.slots_override_too_large(configured, reported_slots))
        return found
