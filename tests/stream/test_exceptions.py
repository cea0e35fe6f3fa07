"""No exception costs a slot: one is thrown at every call that an exchange makes between the shell
and the core, one run each, and the books are right afterwards.

The calls are found by running: a profiler counts each call whose caller or callee lies in the
shell. A test below proves that no call of the shell's sources was missed.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from extproc.app import core_events
from extproc.app.auditor import Auditor
from extproc.app.core_events import CoreEvents
from extproc.core.address import Address
from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.fleet.endpoint import Intent
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.scheduler.takeover import Arrival, Place
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.settings import QueueSettings
from extproc.stream import (
    exchange,
    held_slot,
    limited_request,
    pending_streams,
    response_feedback,
    response_state,
    running_stream,
    servicer,
)
from extproc.stream.envoy.codec import PROCESS
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.servicer import ExternalProcessor
from extproc.transport import ServiceTable
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, eventually
from tests.fakes.small_fleet import SmallFleet
from tests.long_run import IS_LONG_RUN

pytestmark = [
    pytest.mark.breaks_books,
    # An exception may also be thrown where Python closes a generator, which can only report it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(
        not str(exchange.__file__).endswith(".py"), reason="no profiler sees compiled calls"
    ),
]
OVERFLOW = Path(__file__).parents[1] / "data" / "llamacpp" / "overflow_stream_chat.txt"

SHELL: tuple[ModuleType, ...] = (
    *(servicer, exchange, held_slot, running_stream, limited_request),
    *(pending_streams, response_feedback, response_state, core_events),
)
FILES = {str(module.__file__): module for module in SHELL}


class InjectedError(Exception):
    """What is thrown."""


class Injector:
    """Throws at the call with this number; only counts where that is None."""

    def __init__(self, at: int | None) -> None:
        self._at = at
        self._steps: set[int] = set()
        self._frames: list[FrameType] = []
        self.sites: list[tuple[str, int, str]] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            caller, name = frame.f_back, frame.f_code.co_name
            if frame.f_code.co_flags & inspect.CO_COROUTINE:
                if id(frame) in self._steps:
                    return  # it goes on after an await: nobody called it
                self._steps.add(id(frame))
                self._frames.append(frame)
            is_shell = frame.f_code.co_filename in FILES
        elif event == "c_call":
            caller, name, is_shell = frame, getattr(argument, "__name__", "?"), False
        else:
            return
        if caller is not None and caller.f_code.co_filename in FILES:
            site = (caller.f_code.co_filename, caller.f_lineno, name)
        elif is_shell:
            site = (frame.f_code.co_filename, frame.f_code.co_firstlineno, name)
        else:
            return
        self.sites.append(site)
        if len(self.sites) - 1 == self._at:
            raise InjectedError


KEYS = KnownKeys({digest_of("sk-web"): "web", digest_of("sk-free"): "free"})
LIMITS = {"web": ClientLimit(requests=3, queued=1, tokens_per_minute=600)}


class Shell:
    """Core, streams and auditor as the service has them; the transport is moved by hand."""

    def __init__(self, *slots: int, queue_max_requests: int = 100) -> None:
        self.fleet = SmallFleet(*slots, queue_max_requests=queue_max_requests)
        self.registry = ExchangeRegistry()
        self.pending = PendingStreams()
        self.records: list[ExchangeRecord] = []
        self.limits = ClientLimits(LIMITS)
        CoreEvents(
            self.fleet.dispatcher,
            self.pending,
            self._clock,
            wake_at=self.fleet.listener.wake_at,
            scrape=self.fleet.listener.unsure_of,
            membership_changed=self.fleet.listener.membership_changed,
        ).listen()
        self.processor = ExternalProcessor(
            self.fleet.dispatcher,
            self.pending,
            self.registry,
            ExchangeOptions(queue=QueueSettings(timeout_s=60.0), limits=self.limits),
            self._clock,
            self.records.append,
            has_reports=lambda: self.has_reports,
        )
        self.has_reports = False
        self.auditor = Auditor(
            self.fleet.dispatcher, self.registry, self.pending, self._clock, self.limits
        )
        table: ServiceTable = {}
        self.processor.add_to(table)
        self._serve = table[PROCESS]
        self.calls: list[HandCall] = []

    def _clock(self) -> float:
        return self.fleet.now

    async def open(self, *messages: Any) -> HandCall:
        """A stream on which this was said, and heard."""
        call = HandCall()
        self.calls.append(call)
        call.open(self._serve)
        for message in messages:
            call.say(message)
        await self.settle()
        return call

    async def say(self, stream: HandCall, message: Any) -> None:
        stream.say(message)
        await self.settle()

    async def leave(self, index: int) -> None:
        """The client of a stream leaves."""
        self.calls[index].reset()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Everybody leaves, and every server is seen idle; then nothing may be left of anybody."""
        for call in self.calls:
            call.reset()
        await self.settle()
        for one in list(self.registry):  # whose body still comes is awaited for seconds
            assert isinstance(one, running_stream.RunningStream)
            one.upload_silent()
            one.upload_silent()
        await eventually(lambda: all(one.is_over for one in self.registry))
        faults = self.auditor.audit(self.fleet.now)
        for _ in range(3):
            self.fleet.now += 1.0
            self.auditor.audit(self.fleet.now)
        self.fleet.now += 20.0
        self.fleet.dispatcher.advance(self.fleet.now)
        for address, slots in self.slots.items():
            self.fleet.now += 1.0
            self.fleet.scrape(address, slots=slots)
        self.left_to_auditor = [fault.text for fault in faults]
        assert self.fleet.dispatcher.faults(self.fleet.now) == []
        assert self.auditor.audit(self.fleet.now) == []
        for address, slots in self.slots.items():
            assert self.fleet.account(address).free_slots == slots
        assert not len(self.fleet.dispatcher.queue)
        assert not len(self.pending)
        assert not len(self.registry)
        assert list(self.limits.held()) == []

    left_to_auditor: list[str]

    @property
    def slots(self) -> dict[Address, int]:
        return {one: self.fleet.account(one).slots for one in self.fleet.addresses}


def ask(number: int = 0, **headers: str) -> Any:
    return envoy.request_headers(x_request_id=str(number), **headers)


async def served(shell: Shell) -> None:
    """Two run, one waits and gets the first one's slot."""
    first = await shell.open(ask(1))
    await shell.open(ask(2))
    waiting = await shell.open(ask(3))
    await shell.say(first, envoy.response_headers())
    await shell.say(first, envoy.part("response_trailers"))
    first.half_close()
    await shell.settle()
    await shell.say(waiting, envoy.response_headers())
    waiting.half_close()
    await shell.settle()


async def finished(shell: Shell) -> None:
    """The slot is free with the headers of a short response: one waits for it; another one's
    response breaks off behind them."""
    first = await shell.open(ask(1))
    second = await shell.open(ask(2))
    await shell.open(ask(3))
    await shell.say(first, envoy.response_headers(body_bytes=100))
    await shell.settle()
    await shell.say(second, envoy.response_headers(body_bytes=100))
    for one in shell.registry:
        one.break_off(is_servers_fault=True)
    for call in (first, second):
        call.half_close()
    await shell.settle()


async def streamed(shell: Shell) -> None:
    """An event stream of a conversation to its end."""
    stream = await shell.open(ask(1, x_conversation_id="c"))
    await shell.say(stream, envoy.response_headers(content_type="text/event-stream"))
    for one in shell.registry:
        one.complete()
    stream.half_close()
    await shell.settle()


async def reported(shell: Shell) -> None:
    """Two event streams whose ends Envoy reports just behind them, and one that it does not."""
    shell.has_reports = True
    calls = [await shell.open(ask(number)) for number in (1, 2)]
    for call in calls:
        await shell.say(call, envoy.response_headers(content_type="text/event-stream"))
    for one, end in zip(list(shell.registry), (HandCall.reset, HandCall.half_close), strict=False):
        end(calls.pop(0))
        one.complete()
        one.reported()
    await shell.settle()
    stream = await shell.open(ask(3))
    await shell.say(stream, envoy.response_headers(content_type="text/event-stream"))
    await shell.leave(2)


async def uploading(shell: Shell) -> None:
    """Two streams that are lost with half of a body, of which one becomes whole, and one that is
    lost before its request was sent anywhere."""
    for number in (1, 2):
        await shell.open(
            envoy.with_body(ask(number)), envoy.body(b'{"prompt":', end_of_stream=False)
        )
    await shell.open(envoy.with_body(ask(3)))
    for call in shell.calls:
        call.lose()
    for one in list(shell.registry):
        assert isinstance(one, running_stream.RunningStream)
        one.upload_reported(17, shell.fleet.now, is_whole=False)
        one.upload_silent()
    for one in list(shell.registry):
        assert isinstance(one, running_stream.RunningStream)
        one.upload_reported(20, shell.fleet.now, is_whole=one is next(iter(shell.registry)))
        one.upload_silent()
        one.upload_silent()
    await shell.settle()


async def fallback(shell: Shell) -> None:
    """Another server answers, and one that nobody reaches."""
    stream = await shell.open(ask(1))
    served_by = shell.fleet.addresses[-1]
    await shell.say(stream, envoy.response_headers(served=str(served_by), attempts=2))
    stream.half_close()
    await shell.settle()
    stream = await shell.open(ask(2))
    await shell.say(
        stream, envoy.response_headers("503", details="upstream_reset_connection_failure")
    )
    await shell.leave(1)
    shell.fleet.now += 1.0
    for address in shell.fleet.addresses:
        shell.fleet.scrape(address)
    stream = await shell.open(ask(3))
    reset = "upstream_reset_before_response_started{connection_termination}"
    await shell.say(stream, envoy.response_headers("502", served=str(served_by), details=reset))
    await shell.leave(2)
    stream = await shell.open(ask(4))
    await shell.say(stream, envoy.response_headers("500", content_type="text/event-stream"))
    for one in list(shell.registry):
        one.break_off(is_servers_fault=True)
    stream.half_close()
    await shell.settle()
    shell.fleet.dispatcher.set_intent(served_by, Intent.DRAINING, shell.fleet.now)


async def too_many(shell: Shell) -> None:
    """A server wants no more requests for now."""
    stream = await shell.open(ask(1))
    served_by = str(shell.fleet.addresses[0])
    await shell.say(stream, envoy.response_headers("429", served=served_by))
    stream.half_close()
    await shell.settle()


async def ejected(shell: Shell) -> None:
    """Three requests fail at one server; a trial request brings it back."""
    bad = str(shell.fleet.addresses[0])
    for number in range(3):
        stream = await shell.open(ask(number))
        shell.fleet.now += 0.1
        await shell.say(stream, envoy.response_headers("500", served=bad))
        stream.half_close()
        await shell.settle()
    shell.fleet.now += 3.0
    shell.fleet.dispatcher.advance(shell.fleet.now)
    trials = [await shell.open(ask(number)) for number in (4, 5)]
    for address, stream in zip(reversed(shell.fleet.addresses), trials, strict=True):
        await shell.say(stream, envoy.response_headers(served=str(address)))
        stream.half_close()
        await shell.settle()


async def timed_out(shell: Shell) -> None:
    """Waits run out, with clients that left before and in the same moment."""
    await shell.open(ask(1))
    await shell.open(ask(2))
    for number in range(3, 7):
        await shell.open(ask(number))
    await shell.leave(3)
    shell.fleet.now += 61.0
    shell.fleet.dispatcher.advance(shell.fleet.now)
    shell.calls[4].reset()
    await shell.settle()
    await shell.leave(0)


async def cancelled(shell: Shell) -> None:
    """By an operator: one that runs, one that waits, one that is read."""
    await shell.open(ask(1))
    await shell.open(ask(2))
    await shell.open(ask(3))
    await shell.open(envoy.with_body(ask(4)))
    for stream in list(shell.registry):
        stream.snapshot(shell.fleet.now)
        try:
            stream.cancel(shell.fleet.now)
        except InjectedError:
            continue  # the operator's call fails
    await shell.settle()


async def bodies(shell: Shell) -> None:
    """Read, waiting, broken off in the middle, and half a body."""
    stream = await shell.open(envoy.with_body(ask(1)), envoy.body(b'{"model":"m","prompt":"p"}'))
    await shell.open(envoy.with_body(ask(2)), envoy.body(b'{"prompt":', end_of_stream=False))
    await shell.open(envoy.with_body(ask(3)), envoy.body(b"[]"))
    await shell.open(envoy.with_body(ask(4)), envoy.body(b'{"prompt":"q"}'))
    await shell.leave(1)
    for one in list(shell.registry):
        one.upload_reported(17, shell.fleet.now, is_whole=False)
        why = one.upload_reported(17, shell.fleet.now + 90.0, is_whole=False)
        one.upload_reported(20, shell.fleet.now + 90.0, is_whole=True)
        if why is not None:
            one.end_upload(why, shell.fleet.now)
    await shell.say(stream, envoy.response_headers())
    stream.half_close()
    await shell.settle()


async def untaken(shell: Shell) -> None:
    """A stream that is gone when its ticket is settled, and one whose way cannot be told."""
    running = await shell.open(ask(1))
    other = await shell.open(ask(2))
    for number in range(3, 5):
        await shell.open(ask(number))
    await shell.open(ask(5))
    for stream, lacks in zip(list(shell.registry)[2:], ("ticket", "request"), strict=False):
        assert isinstance(stream, running_stream.RunningStream)
        if lacks == "request":
            stream.exchange._reader.request = None
        elif stream.ticket is not None:
            shell.pending.leave(stream.ticket)
    for ended in (running, other):
        await shell.say(ended, envoy.response_headers())
        ended.half_close()
        await shell.settle()
    shell.fleet.dispatcher.set_intent(shell.fleet.addresses[0], Intent.DISABLED, shell.fleet.now)


async def relayed(shell: Shell) -> None:
    """Full duplex to an overflow, a gateway that closes its half, and trailers that come late."""
    stream = await shell.open(
        envoy.with_body(ask(1), is_duplex=True), envoy.body(b'{"prompt":"p"}')
    )
    await shell.say(stream, envoy.response_headers(content_type="text/event-stream"))
    await shell.say(stream, envoy.part("request_trailers"))
    answer_part = envoy.part("response_body")
    answer_part.response_body.body = OVERFLOW.read_bytes()
    answer_part.response_body.end_of_stream = True
    await shell.say(stream, answer_part)
    stream.half_close()
    gateway = envoy.with_body(ask(2))
    gateway.ClearField("protocol_config")
    stream = await shell.open(gateway)
    stream.half_close()
    await shell.settle()
    late = await shell.open(envoy.with_body(ask(3)), envoy.body(b'{"p', end_of_stream=False))
    await shell.say(late, envoy.part("request_trailers"))
    await shell.open(
        envoy.with_body(ask(4), is_duplex=True),
        envoy.body(b'{"prompt":"p"}', end_of_stream=False),
        envoy.part("request_trailers"),
    )
    endpoint = shell.fleet.endpoint(shell.fleet.addresses[0])
    shell.fleet.dispatcher.observe(
        Observation(
            address=endpoint.address,
            began_at=shell.fleet.now,
            answered_at=shell.fleet.now,
            status=ScrapeStatus.READY,
            slots=1,
            busy_slots=0,
            models=(ModelReading(name="tiny"),),
        ),
        shell.fleet.now,
    )
    await shell.open(envoy.request_headers("/v1/models", "GET"))


async def others(shell: Shell) -> None:
    """What takes no slot, what nobody understands, trailers, and who is rejected."""
    passing = await shell.open(envoy.request_headers("/v1/models", "GET"))
    await shell.say(passing, envoy.response_headers())
    passing.half_close()
    await shell.open(envoy.request_headers("/tokenize"))
    await shell.open(envoy.request_headers("/slots", "GET"))
    rejected = await shell.open(ask(1, x_coxswain_queue_timeout_ms="nonsense"))
    await shell.say(rejected, envoy.response_headers("400"))
    await shell.open(envoy.unknown_kind())
    await shell.open(ask(2), ask(2))
    await shell.open(envoy.with_body(ask(3)), envoy.part("request_trailers"))
    stream = await shell.open(ask(4))
    await shell.say(stream, envoy.body(b"x"))
    await shell.say(stream, envoy.part("request_trailers"))
    await shell.say(stream, envoy.part("response_body"))
    for number in range(5, 9):
        await shell.open(ask(number))


async def cut(shell: Shell) -> None:
    """Envoy's connection, while one response flows, one is awaited and one request waits."""
    first = await shell.open(ask(1))
    await shell.open(ask(2))
    await shell.open(ask(3))
    await shell.say(first, envoy.response_headers(content_type="text/event-stream"))
    for call in shell.calls:
        call.lose()
    await shell.settle()


async def closing(shell: Shell) -> None:
    """Who asked to the end and waits, and who comes when the service goes."""
    running = [await shell.open(ask(number)) for number in (1, 2)]
    waiting = await shell.open(ask(3))
    waiting.half_close()
    gateway = envoy.with_body(ask(5))
    gateway.ClearField("protocol_config")
    stream = await shell.open(gateway)
    stream.half_close()
    for ended in running:
        await shell.say(ended, envoy.response_headers())
        ended.half_close()
        await shell.settle()
    shell.processor.close()
    await shell.open(ask(4))


async def moved(shell: Shell) -> None:
    """Queued requests that get the places that they had at a front that was lost: one in time, one
    when the service goes, and one that is not there."""
    running = [await shell.open(ask(number)) for number in (1, 2)]
    for number in (3, 4, 5):
        await shell.open(ask(number))
    dispatcher, now = shell.fleet.dispatcher, shell.fleet.now
    dispatcher.hold()
    try:
        shell.processor.move("5", Place(1, now - 1.0))
        shell.processor.move("6", Place(2, now - 1.0))
        await shell.settle()
    finally:
        dispatcher.assign(now)
    await shell.say(running[0], envoy.response_headers())
    running[0].half_close()
    await shell.settle()
    dispatcher._is_closed = True
    shell.processor.move("4", Place(2, now - 1.0))
    await shell.settle()


async def late(shell: Shell) -> None:
    """A request that came to a front that stood still: it gets the place of its arrival."""
    running = [await shell.open(ask(number)) for number in (1, 2)]
    await shell.open(ask(3))
    stream = await shell.open()
    for each in list(shell.registry)[-1:]:
        assert isinstance(each, running_stream.RunningStream)
        now = shell.fleet.now
        each.exchange.arrival = Arrival(now - 1.0, given_up_at=now + 60.0)
    await shell.say(stream, ask(4))
    await shell.say(running[0], envoy.response_headers())
    running[0].half_close()
    await shell.settle()


async def limited(shell: Shell) -> None:
    """A client with limits: served, queued and then served, rejected for its queue, its requests
    and its tokens, cut off where it runs and where it waits, and one that leaves the queue. Before
    it, one without a key, and one that is wrong in another way too."""
    shell.processor.options = replace(shell.processor.options, keys=KEYS)
    await shell.open(ask(11))
    await shell.open(ask(12, x_coxswain_queue_timeout_ms="soon"))
    web, free = {"authorization": "Bearer sk-web"}, {"authorization": "Bearer sk-free"}
    first = await shell.open(ask(1, **web))
    second = await shell.open(ask(2, **free))
    await shell.open(ask(3, **web))
    await shell.open(ask(4, **web))  # one is queued
    await shell.say(first, envoy.response_headers())
    first.half_close()
    await shell.settle()
    await shell.open(ask(5, **web))
    await shell.open(ask(6, **web))
    await shell.open(ask(7, **web))
    await shell.leave(4)
    await shell.open(ask(8, **web))
    for stream in list(shell.registry):
        try:
            stream.cancel(shell.fleet.now)
        except InjectedError:
            continue
    second.half_close()
    await shell.settle()
    shell.limits.spent("web", 1200, shell.fleet.now)
    await shell.open(ask(9, **web))
    continued = await shell.open()
    for stream in list(shell.registry)[-1:]:
        assert isinstance(stream, running_stream.RunningStream)
        if stream.exchange.stage is exchange.Stage.NEW:
            stream.exchange.place = Place(1000, shell.fleet.now)
    await shell.say(continued, ask(10, **web))


async def revoked(shell: Shell) -> None:
    """The keys of one that waits, and of one that still sends, are revoked."""
    web = {"authorization": "Bearer sk-web"}
    keys = KnownKeys(KEYS.names())
    shell.processor.options = replace(shell.processor.options, keys=keys)
    for number in (1, 2, 3):
        await shell.open(ask(number, **web))
    await shell.open(envoy.with_body(ask(4, **web)))
    keys.replace({digest_of("sk-free"): "free"})
    for stream in list(shell.registry):
        stream.check_key(shell.fleet.now)
    await shell.settle()


SCENARIOS: list[Callable[[Shell], Awaitable[None]]] = [
    served,
    finished,
    streamed,
    reported,
    uploading,
    fallback,
    too_many,
    ejected,
    timed_out,
    cancelled,
    bodies,
    untaken,
    relayed,
    others,
    cut,
    closing,
    limited,
    moved,
    late,
    revoked,
]


async def play(scenario: Callable[[Shell], Awaitable[None]], at: int | None) -> Injector:
    """One run; throws at one call."""
    shell = Shell(1, 1, queue_max_requests=4)
    injector = Injector(at)
    sys.setprofile(injector)
    try:
        await scenario(shell)
    except InjectedError:
        pass  # thrown where the scenario itself calls
    finally:
        sys.setprofile(None)
    await shell.end()
    return injector


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of tracebacks that are meant."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
async def test_no_call_that_fails_costs_a_slot(
    scenario: Callable[[Shell], Awaitable[None]],
) -> None:
    """Whatever of a scenario's calls fails: when everybody has left, every slot is free and
    nothing is left of any request. In the short run, the first and the last call at each site."""
    sites = (await play(scenario, None)).sites
    last = {site: number for number, site in enumerate(sites)}
    first = {sites[number]: number for number in reversed(range(len(sites)))}
    ends = {*first.values(), *last.values()}
    for number in range(len(sites)) if IS_LONG_RUN else sorted(ends):
        try:
            await play(scenario, number)
        except AssertionError as error:
            raise AssertionError(f"thrown at {sites[number]}") from error


NOT_OF_AN_EXCHANGE = {
    "servicer.py": {"__init__", "add_to", "close", "serve_pool"},
    "core_events.py": {"__init__", "listen"},
    "running_stream.py": {"is_over", "give_back", "drop_lease", "resume"},
    "exchange.py": {"resume", "held_lease", "lose_sight"},
    "pending_streams.py": {"__len__", "tickets", "find"},
}
"""Functions for a start or a stop, for the auditor, for pages, and for what another core began:
`tests/processes/fronts`."""
UNSEEN = {
    *("ProtocolError", "ExchangeError", "assert_never"),
    *("_fail", "debug", "warning", "error", "exception", "type"),
    *("unchanged", "routing_headers"),
    *("place", "begin"),
}
"""What is called where an error is already, what a cache in C answers, and what takes the place of
`submit` and of a new call where another core or a front began."""


def calls_of(module: ModuleType) -> Iterator[tuple[str, range]]:
    """Every call in the functions of a module: what is called, and on which lines."""
    path = Path(str(module.__file__))
    exempt = NOT_OF_AN_EXCHANGE.get(path.name, set())
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if function.name in exempt:
            continue
        for call in (one for line in function.body for one in ast.walk(line)):
            if isinstance(call, ast.Call):
                end = call.func.end_lineno or call.lineno
                yield ast.unparse(call.func).rpartition(".")[2], range(call.lineno, end + 1)


async def test_every_call_of_the_shell_is_thrown_at() -> None:
    """The scenarios above leave out no call that stands in the shell's sources."""
    hit = set[tuple[str, int]]()
    for scenario in SCENARIOS:
        hit |= {(file, line) for file, line, _ in (await play(scenario, None)).sites}
    missed = [
        f"{Path(str(module.__file__)).name}:{lines[0]} {name}"
        for module in SHELL
        for name, lines in calls_of(module)
        if name not in UNSEEN and not any((module.__file__, line) in hit for line in lines)
    ]
    assert "\n".join(missed) == ""
