"""One look at one server: which questions are asked in which state.

    what is known                        | asked, in this order
    -------------------------------------|-----------------------------------------------------
    nothing, or another process hinted   | /props; of a process not seen before /v1/models and
                                         | /lora-adapters, until they are answered
    a plain server that stays awake      | /slots
    one that sleeps, or may              | /props, then /slots where `idle_sleep` allows it
    it hides its slots (501, 401)        | /health
    a router                             | /v1/models, then /slots of each loaded model
    /slots has not answered in time      | /health; the open /slots question is kept
    last look failed, or found it loading| /props, then as above

Another process is hinted at by a new connection, another slot count, or task numbers that
went backwards. Never asked: /metrics, whose gauges every scrape resets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace

from extproc.core.observation import AdapterReading, Issue, Observation, ScrapeStatus
from scraper.llama.client import Answer, Failure, FailureKind, LlamaClient
from scraper.llama.parse import (
    ModelEntry,
    ParseError,
    PropsReading,
    parse_adapters,
    parse_models,
    parse_props,
)
from scraper.llama.router import RouterModels
from scraper.llama.slots_request import (
    NOT_LOADED,
    SlotCounts,
    ask_slots,
    ask_slots_of_models,
    garbled,
)
from scraper.options import ScraperOptions
from scraper.probe import issues
from scraper.probe.idle_sleep import IdleSleepTracker
from scraper.probe.report import Report
from scraper.probe.server_identity import ServerIdentity
from scraper.schedule import ScrapePriority
from scraper.target import EndpointTarget

SlotsOutcome = SlotCounts | Answer | Failure
UNAUTHORIZED = frozenset({401, 403})
NO_SUCH_PATH = frozenset({404, 405, 501})


class EndpointProbe:
    """What one server is known to be, and the question to it that may still be open.

    `scrape` is called by one task at a time; close it with `aclose`.
    """

    def __init__(
        self,
        target: EndpointTarget,
        options: ScraperOptions,
        clock: Callable[[], float],
        client: LlamaClient | None = None,
    ) -> None:
        self._target = target
        self._options = options
        self._clock = clock
        self._client = client or LlamaClient(target, options.timeouts, clock)
        self._facts = ServerIdentity()
        self._sleep = IdleSleepTracker(options.sleep_trial, target.may_sleep)
        self._router = RouterModels(options.sleep_trial)
        self._report = Report(target, self._facts, self._router)
        self._question: asyncio.Task[SlotsOutcome] | None = None
        self._question_began_at = 0.0
        self._must_learn = True
        self._looks_since_learnt = 0
        self._last_props: tuple[bytes, PropsReading] | None = None

    async def aclose(self) -> None:
        """Cancel the open request and close the connections."""
        try:
            await self._drop_question()
        finally:
            await self._client.aclose()

    async def scrape(self, attention: ScrapePriority) -> Observation:
        """Ask what has to be asked now. Takes `slow_after_s` and a few short answers at most.

        Never raises for anything the server or the network does.
        """
        self._looks_since_learnt += 1
        if self._question is not None:
            return await self._await_slots()
        sign: Answer | None = None
        if self._is_learning_due(attention):
            learnt = await self._learn()
            if isinstance(learnt, Observation):
                return learnt
            sign = learnt
        if self._facts.is_router:
            return await self._look_at_router(attention)
        if self._sleep.is_asleep and sign is not None:
            return self._report.observe(sign, ScrapeStatus.ASLEEP, busy_slots=0)
        if self._facts.hidden is not None:
            return await self._look_without_slots(sign)
        if not self._sleep.may_ask_slots(self._clock(), attention) and sign is not None:
            return self._report.observe(sign, ScrapeStatus.READY)
        self._open(ask_slots(self._client))
        return await self._await_slots()

    def _is_learning_due(self, attention: ScrapePriority) -> bool:
        if self._must_learn or self._looks_since_learnt > self._options.props_every_scrapes:
            return True
        return not self._facts.is_router and self._sleep.needs_props(self._clock(), attention)

    # Which process it is

    async def _learn(self) -> Answer | Observation:
        """Ask /props. The answer that showed life, or the observation that ends this look."""
        answer = await self._client.ask("/props")
        if isinstance(answer, Answer) and answer.status in UNAUTHORIZED:
            answer = await self._client.ask("/health")  # is open to everybody
            if isinstance(answer, Failure) or answer.status != 200:
                return self._learn_anew(answer, "/health")
            self._learnt(self._facts.update(None, self._unauthorized()))
        elif isinstance(answer, Answer) and answer.status in NO_SUCH_PATH:
            self._learnt(self._facts.update(None, None))
        elif isinstance(answer, Failure) or answer.status != 200:
            return self._learn_anew(answer, "/props")
        else:
            try:
                props = self._read_props(answer.body)
            except ParseError as error:
                return self._learn_anew(garbled(answer, error), "/props")
            hidden = None if props.shows_slots else issues.slots_disabled()
            self._learnt(self._facts.update(props, hidden))
            self._sleep.props_told(props.is_asleep)
            if not props.is_router:
                await self._learn_holdings()
        return answer

    def _read_props(self, body: bytes) -> PropsReading:
        """As `parse_props`, but cached, because most responses repeat the previous one."""
        if self._last_props is None or self._last_props[0] != body:
            self._last_props = (body, parse_props(body))
        return self._last_props[1]

    def _learnt(self, is_new: bool) -> None:
        self._must_learn = False
        self._looks_since_learnt = 0
        if is_new:
            self._sleep.start_process()
            self._router.start_process()

    async def _learn_holdings(self) -> None:
        """Request the models and adapters if they are not known."""
        if not self._facts.models:
            await self._learn_models()
        if self._facts.adapters is None:
            await self._learn_adapters()
            if self._facts.awaits_adapters:
                self._must_learn = True

    async def _learn_models(self) -> None:
        answer = await self._client.ask("/v1/models")
        entries: tuple[ModelEntry, ...] = ()
        if isinstance(answer, Answer) and answer.status == 200:
            with suppress(ParseError):  # the name in /props does as well
                entries = parse_models(answer.body)
        self._facts.learn_models(entries)

    async def _learn_adapters(self) -> None:
        """Like /slots it is answered between two batches: a busy server may take its time."""
        answer = await self._client.ask("/lora-adapters")
        adapters: tuple[AdapterReading, ...] | None = None
        if isinstance(answer, Answer) and answer.status != 503:
            adapters = ()
            if answer.status == 200:
                with suppress(ParseError):
                    adapters = parse_adapters(answer.body)
        self._facts.learn_adapters(adapters)

    # How many of its slots are busy

    def _open(self, asking: Coroutine[None, None, SlotsOutcome]) -> None:
        self._question_began_at = self._clock()
        self._question = asyncio.create_task(asking)

    async def _drop_question(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.cancel()
            await asyncio.wait({question})

    async def _await_slots(self) -> Observation:
        """Wait for the open request; report it as slow without a response."""
        assert self._question is not None
        await asyncio.wait({self._question}, timeout=self._options.slow_after_s)
        if not self._question.done():
            return await self._look_at_slow()
        outcome = self._question.result()
        self._question = None
        match outcome:
            case SlotCounts():
                return await self._count(outcome)
            case Failure(kind=FailureKind.TIMED_OUT):
                return await self._look_at_slow()
            case Answer(status=status) if status in UNAUTHORIZED:
                self._facts.hidden = self._unauthorized()
                return self._report.observe(outcome, ScrapeStatus.READY)
            case Answer(status=501):
                self._facts.hidden = issues.slots_disabled()
                return self._report.observe(outcome, ScrapeStatus.READY)
            case Answer(status=status) if self._facts.is_router and status in NOT_LOADED:
                return self._report.observe(
                    outcome, ScrapeStatus.READY
                )  # the next look lists them anew
            case _:
                return self._learn_anew(outcome, "/slots")

    async def _count(self, told: SlotCounts) -> Observation:
        """The count as an observation, after checking which process it belongs to."""
        if self._facts.is_router:
            self._router.count(told)
            if told.is_first_on_connection:
                self._must_learn = True
            return self._report.observe(
                told, ScrapeStatus.READY, busy_slots=self._router.busy_slots
            )
        if self._facts.count(told) or told.is_first_on_connection:
            learnt = await self._learn()
            if isinstance(learnt, Observation):
                return learnt
            self._facts.count(told)
        self._sleep.slots_told(told.began_at, told.busy_slots)
        return self._report.observe(told, ScrapeStatus.READY, busy_slots=told.busy_slots)

    async def _look_at_slow(self) -> Observation:
        """/slots stalls, which is no failure while /health answers. Busy slots stay as known.

        This look began when the open question did: were it dated later, the question's answer
        would come in as older than what is known already.
        """
        waited_s = self._clock() - self._question_began_at
        health = await self._client.ask("/health")
        health = replace(health, began_at=self._question_began_at)
        if isinstance(health, Answer) and health.status == 200:
            return self._report.observe(
                health, ScrapeStatus.READY, also=issues.slow_slots(waited_s)
            )
        if not (isinstance(health, Failure) and health.kind is FailureKind.TIMED_OUT):
            await self._drop_question()
        return self._learn_anew(health, "/health")

    async def _look_without_slots(self, sign: Answer | None) -> Observation:
        answer = sign or await self._client.ask("/health")
        if isinstance(answer, Failure) or answer.status != 200:
            return self._learn_anew(answer, "/health")
        if answer.is_first_on_connection and sign is None:
            self._must_learn = True
        return self._report.observe(answer, ScrapeStatus.READY)

    async def _look_at_router(self, attention: ScrapePriority) -> Observation:
        answer = await self._client.ask("/v1/models")
        if isinstance(answer, Failure) or answer.status != 200:
            return self._learn_anew(answer, "/v1/models")
        try:
            entries = parse_models(answer.body)
        except ParseError as error:
            return self._learn_anew(garbled(answer, error), "/v1/models")
        assert self._facts.props is not None, "only /props identifies a router"
        self._router.list(entries, self._facts.props.autoloads)
        status = self._router.status
        if status is not ScrapeStatus.READY:
            return self._report.observe(
                answer, status, busy_slots=0 if status is ScrapeStatus.ASLEEP else None
            )
        asked = self._router.models_to_ask(self._clock(), attention)
        if not asked:
            return self._report.observe(answer, ScrapeStatus.READY)
        self._open(ask_slots_of_models(self._client, asked))
        return await self._await_slots()

    # What it comes to

    def _learn_anew(self, answer: Answer | Failure, path: str) -> Observation:
        """The observation for an unusable response: loading, gone, or invalid."""
        self._must_learn = True
        if isinstance(answer, Failure) and answer.kind is FailureKind.UNREACHABLE:
            self._facts.vanish()
        return self._report.useless(answer, path)

    def _unauthorized(self) -> Issue:
        return issues.unauthorized(self._target.api_key is not None)
