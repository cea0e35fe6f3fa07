"""One scrape of one server: which requests it sends in which state.

    what is known                        | requested, in this order
    -------------------------------------|-----------------------------------------------------
    nothing, or another process hinted   | /props; of a process not seen before /v1/models and
                                         | /lora-adapters, until both succeed
    a plain server that stays awake      | /slots
    one that sleeps, or may              | /props, then /slots where `idle_sleep` allows it
    it hides its slots (501, 401)        | /health
    a router                             | /v1/models, then /slots of each loaded model
    /slots has not answered in time      | /health, of a router /v1/models; the open /slots
                                         | request continues
    failed or loading at the last scrape | /props, then as above

A new connection, another slot count, or task numbers that went backwards hint at another process.
/metrics is requested only if somebody wants the counters, because each request resets its gauges:
of a plain server that has it, immediately before /slots.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace

from extproc.core.observation import (
    AdapterReading,
    Issue,
    Observation,
    ScrapeStatus,
    TokenCounters,
)
from extproc.runners import issues
from extproc.runners.answers import ParseError
from extproc.runners.client import (
    LOST_S,
    Answer,
    Failure,
    FailureKind,
    OwnFaultError,
    RunnerClient,
    never_blocked,
)
from extproc.runners.llama_server.arguments import context_arguments
from extproc.runners.llama_server.counters import PATH as COUNTERS_PATH
from extproc.runners.llama_server.counters import parse_counters
from extproc.runners.llama_server.idle_sleep import IdleSleepTracker
from extproc.runners.llama_server.local_server import LOCAL_SERVERS
from extproc.runners.llama_server.parse import (
    ModelEntry,
    PropsReading,
    parse_adapters,
    parse_models,
    parse_props,
)
from extproc.runners.llama_server.report import Report
from extproc.runners.llama_server.router import RouterModels
from extproc.runners.llama_server.server_identity import ServerIdentity
from extproc.runners.llama_server.slots_request import (
    NOT_LOADED,
    SlotCounts,
    garbled,
    request_slots,
)
from extproc.runners.openai.paths import MODELS_PATH
from extproc.runners.probe import ProbeOptions, ScrapePriority
from extproc.runners.target import EndpointTarget

SlotsOutcome = SlotCounts | Answer | Failure
UNAUTHORIZED = frozenset({401, 403})
NO_SUCH_PATH = frozenset({404, 405, 501})
PROPS_PATH = "/props"
COUNTERS_S = 0.5
"""A server that does not answer within this time reads a long prompt: /slots is more urgent."""


def has_no_props(answer: Answer | Failure) -> bool:
    """Whether a server that answers GET /props like this is certainly no llama-server."""
    if isinstance(answer, Failure) or (answer.status != 200 and answer.status not in NO_SUCH_PATH):
        return False
    try:
        parse_props(answer.body)
    except ParseError:
        return True
    return False


def unwanted() -> bool:
    """Nobody wants the counters."""
    return False


class LlamaServerProbe:
    """The known state of one server, and the request for /slots that may still be open.

    `scrape` is called by one task at a time; close it with `aclose`.
    """

    def __init__(
        self,
        target: EndpointTarget,
        options: ProbeOptions,
        clock: Callable[[], float],
        *,
        lost_s: Callable[[float], float] = never_blocked,
        wants_counters: Callable[[], bool] = unwanted,
        client: RunnerClient | None = None,
    ) -> None:
        """`lost_s` says for how many seconds since a moment this process was blocked.
        `wants_counters` is called before each request for /slots of a plain server."""
        self._target = target
        self._options = options
        self._clock = clock
        self._lost_s = lost_s
        self._wants_counters = wants_counters
        self._counters: TokenCounters | None = None
        self._client = client or RunnerClient(target, options.timeouts, clock, lost_s)
        self._identity = ServerIdentity()
        self._sleep = IdleSleepTracker(options.sleep_trial, target.may_sleep)
        self._router = RouterModels(options.sleep_trial, is_managed=options.loads_models)
        self._report = Report(target, self._identity, self._router)
        self._open_request: asyncio.Task[SlotsOutcome] | None = None
        self._open_request_began_at = 0.0
        self._must_identify = True
        self._scrapes_since_props = 0
        self._last_props: tuple[bytes, PropsReading] | None = None

    async def aclose(self) -> None:
        """Cancel the open request and close the connections."""
        try:
            await self._cancel_open_request()
        finally:
            await self._client.aclose()

    async def scrape(self, priority: ScrapePriority) -> Observation:
        """Send the due requests. Takes at most `slow_after_s` and a few short responses.

        Never raises for an error of the server or the network, but `OwnFaultError`.
        """
        try:
            return await self._scrape(priority)
        except OwnFaultError:
            self._must_identify = True  # what was being asked is not known
            raise

    async def _scrape(self, priority: ScrapePriority) -> Observation:
        self._scrapes_since_props += 1
        if self._open_request is not None:
            return await self._await_slots()
        response: Answer | None = None
        if self._needs_props(priority):
            identified = await self._identify()
            if isinstance(identified, Observation):
                return identified
            response = identified
        if self._identity.is_router:
            return await self._scrape_router(priority)
        if self._sleep.is_asleep and response is not None:
            return self._report.observe(response, ScrapeStatus.ASLEEP, busy_slots=0)
        if self._identity.hidden is not None:
            return await self._scrape_health(response)
        if not self._sleep.may_request_slots(self._clock(), priority) and response is not None:
            return self._report.observe(response, ScrapeStatus.READY)
        self._counters = await self._request_counters() if self._wants_counters() else None
        self._open(request_slots(self._client))
        return await self._await_slots()

    def _needs_props(self, priority: ScrapePriority) -> bool:
        if self._must_identify or self._scrapes_since_props > self._options.props_every_scrapes:
            return True
        return not self._identity.is_router and self._sleep.needs_props(self._clock(), priority)

    # Which process it is

    async def _identify(self) -> Answer | Observation:
        """Request /props. Returns a usable response, or the observation that ends this scrape."""
        answer = await self._client.ask(PROPS_PATH)
        if isinstance(answer, Answer) and answer.status in UNAUTHORIZED:
            answer = await self._client.ask("/health")  # needs no key
            if isinstance(answer, Failure) or answer.status != 200:
                return self._report_unusable(answer, "/health")
            self._set_identified(self._identity.update(None, self._unauthorized()))
        elif isinstance(answer, Answer) and answer.status in NO_SUCH_PATH:
            self._set_identified(self._identity.update(None, None))
        elif isinstance(answer, Failure) or answer.status != 200:
            return self._report_unusable(answer, "/props")
        else:
            try:
                props = self._read_props(answer.body)
            except ParseError as error:
                return self._report_unusable(garbled(answer, error), "/props")
            hidden = None if props.shows_slots else issues.slots_disabled()
            is_new = self._identity.update(props, hidden)
            self._set_identified(is_new)
            self._sleep.on_props(props.is_asleep)
            if not props.is_router:
                await self._request_missing()
                if is_new:
                    await self._read_command_line()
        return answer

    def _read_props(self, body: bytes) -> PropsReading:
        """As `parse_props`, but cached, because most responses repeat the previous one."""
        if self._last_props is None or self._last_props[0] != body:
            self._last_props = (body, parse_props(body))
        return self._last_props[1]

    def _set_identified(self, is_new: bool) -> None:
        self._must_identify = False
        self._scrapes_since_props = 0
        if is_new:
            self._sleep.start_process()
            self._router.start_process()

    async def _read_command_line(self) -> None:
        """Read how a server on this machine was started."""
        server = await LOCAL_SERVERS.find(self._target.address)
        if server is not None:
            self._identity.context = context_arguments(server.arguments, server.environment)

    async def _request_missing(self) -> None:
        """Request the models and adapters if they are not known."""
        if not self._identity.models:
            await self._request_models()
        if self._identity.adapters is None:
            await self._request_adapters()
            if self._identity.awaits_adapters:
                self._must_identify = True

    async def _request_models(self) -> None:
        answer = await self._client.ask(MODELS_PATH)
        entries: tuple[ModelEntry, ...] = ()
        if isinstance(answer, Answer) and answer.status == 200:
            with suppress(ParseError):  # the name in /props does as well
                entries = parse_models(answer.body)
        self._identity.set_models(entries)

    async def _request_adapters(self) -> None:
        """Request /lora-adapters, which a busy server answers late, between two batches."""
        answer = await self._client.ask("/lora-adapters")
        adapters: tuple[AdapterReading, ...] | None = None
        if isinstance(answer, Answer) and answer.status != 503:
            adapters = ()
            if answer.status == 200:
                with suppress(ParseError):
                    adapters = parse_adapters(answer.body)
        self._identity.set_adapters(adapters)

    async def _request_counters(self) -> TokenCounters | None:
        """What the server counted, None if it does not show that, or not in time."""
        props = self._identity.props
        if props is None or not props.shows_counters:
            return None
        try:
            async with asyncio.timeout(COUNTERS_S):
                answer = await self._client.ask(COUNTERS_PATH)
        except TimeoutError:
            return None
        if isinstance(answer, Answer) and answer.status == 200:
            with suppress(ParseError):
                return parse_counters(answer.body, answer.began_at)
        return None

    # How many of its slots are busy

    def _open(self, asking: Coroutine[None, None, SlotsOutcome]) -> None:
        self._open_request_began_at = self._clock()
        self._open_request = asyncio.create_task(asking)

    async def _cancel_open_request(self) -> None:
        query, self._open_request = self._open_request, None
        if query is not None:
            query.cancel()
            await asyncio.gather(query, return_exceptions=True)

    async def _await_slots(self) -> Observation:
        """Wait for the open request; report it as slow without a response."""
        assert self._open_request is not None
        is_slow = False
        while not (is_slow or self._open_request.done()):
            began_at = self._clock()
            await asyncio.wait({self._open_request}, timeout=self._options.slow_after_s)
            is_slow = self._lost_s(began_at) <= LOST_S  # else the time passed here, not there
        if not self._open_request.done():
            return await self._report_slow()
        request, self._open_request = self._open_request, None
        outcome = request.result()
        match outcome:
            case SlotCounts():
                return await self._count(outcome)
            case Failure(kind=FailureKind.TIMED_OUT):
                return await self._report_slow()
            case Answer(status=status) if status in UNAUTHORIZED:
                self._identity.hidden = self._unauthorized()
                return self._report.observe(outcome, ScrapeStatus.READY)
            case Answer(status=501):
                self._identity.hidden = issues.slots_disabled()
                return self._report.observe(outcome, ScrapeStatus.READY)
            case Answer(status=status) if self._identity.is_router and status in NOT_LOADED:
                return self._report.observe(
                    outcome, ScrapeStatus.READY
                )  # the next scrape lists the models again
            case _:
                return self._report_unusable(outcome, "/slots")

    async def _count(self, counts: SlotCounts) -> Observation:
        """The count as an observation, after checking which process it belongs to."""
        if self._identity.is_router:
            self._router.count(counts)
            if counts.is_first_on_connection:
                self._must_identify = True
            return self._report.observe(
                counts, ScrapeStatus.READY, busy_slots=self._router.busy_slots
            )
        if self._identity.count(counts) or counts.is_first_on_connection:
            identified = await self._identify()
            if isinstance(identified, Observation):
                return identified
            self._identity.count(counts)
        self._sleep.on_slots(counts.began_at, counts.busy_slots)
        observation = self._report.observe(counts, ScrapeStatus.READY, busy_slots=counts.busy_slots)
        if self._counters is None:
            return observation
        return replace(observation, counters=self._counters)

    async def _report_slow(self) -> Observation:
        """Observe a slow /slots: no failure if /health answers. Busy slots stay as known.

        It begins when the open request began. With a later time, the response to that request would
        count as outdated.
        """
        waited_s = self._clock() - self._open_request_began_at
        path = MODELS_PATH if self._identity.is_router else "/health"
        health = await self._client.ask(path)
        if isinstance(health, Answer) and health.status == 200 and self._identity.is_router:
            with suppress(ParseError):  # its other models may have come and gone meanwhile
                self._list(parse_models(health.body), health, is_counting=True)
        health = replace(health, began_at=self._open_request_began_at)
        if isinstance(health, Answer) and health.status == 200:
            return self._report.observe(
                health, ScrapeStatus.READY, also=issues.slow_slots(waited_s)
            )
        if not (isinstance(health, Failure) and health.kind is FailureKind.TIMED_OUT):
            await self._cancel_open_request()
        return self._report_unusable(health, path)

    async def _scrape_health(self, response: Answer | None) -> Observation:
        answer = response or await self._client.ask("/health")
        if isinstance(answer, Failure) or answer.status != 200:
            return self._report_unusable(answer, "/health")
        if answer.is_first_on_connection and response is None:
            self._must_identify = True
        return self._report.observe(answer, ScrapeStatus.READY)

    async def _scrape_router(self, priority: ScrapePriority) -> Observation:
        answer = await self._client.ask(MODELS_PATH)
        if isinstance(answer, Failure) or answer.status != 200:
            return self._report_unusable(answer, MODELS_PATH)
        try:
            entries = parse_models(answer.body)
        except ParseError as error:
            return self._report_unusable(garbled(answer, error), MODELS_PATH)
        self._list(entries, answer)
        status = self._router.status
        if status is not ScrapeStatus.READY:
            return self._report.observe(
                answer, status, busy_slots=0 if status is ScrapeStatus.ASLEEP else None
            )
        asked = self._router.models_to_request(self._clock(), priority)
        if not asked:
            return self._report.observe(answer, ScrapeStatus.READY)
        self._open(request_slots(self._client, asked))
        return await self._await_slots()

    def set_leaving(self, models: frozenset[str]) -> None:
        """These models of the router are about to be unloaded: do not request their slots."""
        self._router.leaving = models

    def _list(
        self, entries: tuple[ModelEntry, ...], answer: Answer, *, is_counting: bool = False
    ) -> None:
        props = self._identity.props
        assert props is not None, "only /props identifies a router"
        self._router.list(
            entries,
            autoloads=props.autoloads,
            max_models=props.max_models,
            listed_at=answer.began_at,
            is_counting=is_counting,
        )

    # Unusable responses

    def _report_unusable(self, answer: Answer | Failure, path: str) -> Observation:
        """The observation for an unusable response: loading, gone, or invalid."""
        self._must_identify = True
        if isinstance(answer, Failure) and answer.kind is FailureKind.UNREACHABLE:
            self._identity.vanish()
        return self._report.useless(answer, path)

    def _unauthorized(self) -> Issue:
        return issues.unauthorized(self._target.api_key is not None)
