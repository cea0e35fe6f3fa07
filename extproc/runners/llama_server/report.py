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
from extproc.runners import answers, issues
from extproc.runners.client import Answer, Failure
from extproc.runners.llama_server.paths import LLAMA_SERVER
from extproc.runners.llama_server.router import RouterModels
from extproc.runners.llama_server.server_identity import ServerIdentity
from extproc.runners.llama_server.slots_request import SlotCounts
from extproc.runners.openai.paths import RERANK, TOKENIZE
from extproc.runners.target import EndpointTarget

APIS = frozenset(api.name for api in (LLAMA_SERVER, RERANK, TOKENIZE))
"""Those of a llama-server, besides the one that all servers have."""


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
            runner=LLAMA_SERVER.name,
            apis=APIS,
            is_machine_on=isinstance(response, SlotCounts) or answers.shows_machine(response),
        )

    def useless(self, answer: Answer | Failure, path: str) -> Observation:
        """The observation for an unusable response to GET `path`."""
        status, issue = answers.meaning(answer, path)
        return self.observe(answer, status, also=issue)

    def _issues(self, reported_slots: int | None, also: Issue | None) -> list[Issue]:
        found = [issue for issue in (self._identity.hidden, also) if issue is not None]
        if self._identity.is_router:
            found.extend(self._router.issues())
        configured = self._target.slots
        if configured is not None and reported_slots is not None and reported_slots < configured:
            found.append(issues.slots_override_too_large(configured, reported_slots))
        return found
