"""The agent: one scraper, one server, one picker, from the first scrape to deregistration."""

import asyncio
import logging
import random as random_numbers
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import grpc

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.runners.client import never_blocked
from extproc.runners.probe import ScrapePriority
from extproc.runners.target import EndpointTarget
from scraper.agent.advertise import Advertise, AdvertiseError
from scraper.agent.link import Link
from scraper.agent.picker_stream import Attempts, LinkError, Metadata
from scraper.loop import Scraper
from scraper.options import ScraperOptions

ANSWERS = frozenset({ScrapeStatus.READY, ScrapeStatus.LOADING, ScrapeStatus.ASLEEP})

log = logging.getLogger("coxswain.agent")

Sink = Callable[[Observation], None]


class Source(Protocol):
    """What observes one target: a scraper, or `scraper.agent.fleet_watch`."""

    def watch(self, target: EndpointTarget) -> None:
        """Observe it from now on, at once for the first time. Does not block."""

    def scrape_now(self, address: Address) -> None:
        """Observe it now."""

    async def aclose(self) -> None:
        """Stop observing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """`picker` is host:port; `drain_timeout_s` bounds the deregistration. The metadata (a
    bearer token) goes with each stream and is shown nowhere. `server_name` and `ca_pem` are sent
    if TLS is advertised. `api_key` is the key that Envoy sends to the server, empty for the
    client's. It is a secret: set it only if the connection to the picker is private. `kept_models`
    is the number of models of its machine's keeper, 0 without one."""

    picker: str
    advertise: Advertise
    name: str = ""
    version: str = ""
    metadata: Metadata = field(default=(), repr=False)
    drain_timeout_s: float = 30.0
    server_name: str = ""
    ca_pem: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    kept_models: int = 0
    scraper: ScraperOptions = field(default_factory=ScraperOptions)


class Agent:
    """Reports `target` until `leave`. `connect` opens a channel to the picker, which is closed with
    its stream; it raises `LinkError` if it fails. Belongs to one event loop.
    """

    def __init__(
        self,
        target: EndpointTarget,
        options: AgentOptions,
        connect: Callable[[], grpc.aio.Channel],
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_numbers.random,
        lost_s: Callable[[float], float] = never_blocked,
        edit: Callable[[Observation], Observation] | None = None,
        source: Callable[[Sink], Source] | None = None,
    ) -> None:
        """`lost_s` returns for how many seconds since a moment this process was blocked. `edit`
        returns what is reported in place of an observation. `source` makes what observes in place
        of a scraper, and passes observations to its argument."""
        self.target = target
        self.options = options
        self._connect = connect
        self._clock = clock
        self._edit = edit
        self._attempts = Attempts(log, clock, random)
        self._id = uuid.uuid4().hex
        self._scrape_priority = ScrapePriority.IDLE
        self._scraper: Source
        if source is not None:
            self._scraper = source(self._on_observation)
        else:
            self._scraper = Scraper(
                sink=self._on_observation,
                priority=lambda _: self._scrape_priority,
                options=options.scraper,
                clock=clock,
                lost_s=lost_s,
            )
        self._newest: Observation | None = None
        self._answered = asyncio.Event()
        self._leaving = asyncio.Event()
        self._renewed = asyncio.Event()
        self._link: Link | None = None
        self.was_granted = False
        """Whether the picker has said that its requests here have ended, after `leave`."""

    async def run(self) -> None:
        """Scrape and report until `leave` was called and granted, or its timeout has passed."""
        self._scraper.watch(self.target)
        work = asyncio.create_task(self._report(), name="report to the picker")
        leave = asyncio.create_task(self._leaving.wait(), name="wait for the end")
        try:
            await asyncio.wait({work, leave}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and self._link is not None and self._link.is_attached:
                await asyncio.wait({work}, timeout=self.options.drain_timeout_s)
            if work.done():
                work.result()
        finally:
            for task in (work, leave):
                task.cancel()
            await asyncio.gather(work, leave, return_exceptions=True)
            await self._scraper.aclose()

    def leave(self) -> None:
        """Deregister: the server gets no new requests, and `run` returns when it has none."""
        self._leaving.set()
        if self._link is not None:
            self._link.leave()

    def scrape_now(self) -> None:
        """Scrape the server now: something happened to it, or the picker wants it."""
        self._scraper.scrape_now(self.target.address)

    def _on_observation(self, observation: Observation) -> None:
        if self._edit is not None:
            observation = self._edit(observation)
        self._newest = observation
        if observation.status in ANSWERS:
            self._answered.set()
        if self._link is not None:
            self._link.report(observation)

    async def _report(self) -> None:
        await self._answered.wait()
        while not self._leaving.is_set():
            self._renewed.clear()
            self._attempts.begin()
            is_rejected = False
            try:
                if await self._attach():
                    self.was_granted = True
                    return
                continue
            except LinkError as error:
                is_rejected = error.is_rejection
                self._attempts.failed(self.options.picker, str(error))
            except AdvertiseError as error:
                self._attempts.failed(self.options.picker, str(error))
            except Exception:
                log.exception("reporting to the picker failed; it is tried again")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._attempts.pause_s(is_rejected=is_rejected)):
                    await self._renewed.wait()

    def renew(self, target: EndpointTarget, options: AgentOptions) -> None:
        """Use other keys and certificates from now on; the rest stays as it was.

        Sends them to the picker at once, on a new stream if that is necessary. Raises `OSError`
        and changes nothing if the certificates cannot be read.
        """
        if self._leaving.is_set() or (target, options) == (self.target, self.options):
            return
        self._scraper.watch(target)
        log.info("reloaded keys or certificates")
        has_change = _sent_once(options) != _sent_once(self.options)
        self.target, self.options = target, options
        self._renewed.set()  # the picker may accept now what it rejected before
        if self._link is not None and has_change:
            self._link.hang_up()

    async def _attach(self) -> bool:
        """Run one stream to its end; False if the next one should follow at once."""
        address = await self.options.advertise.find(self.options.picker)
        hello = pb.Hello(
            address=str(address),
            name=self.options.name,
            slots=self.target.slots or 0,
            agent_id=self._id,
            version=self.options.version,
            tls=self._tls(),
            api_key=self.options.api_key,
            kept_models=self.options.kept_models,
        )
        channel = self._connect()
        self._link = link = Link(hello, self.scrape_now, self._set_priority, self._clock)
        assert self._newest is not None, "an agent attaches after its first scrape"
        link.report(self._newest)
        try:
            return await link.run(channel, self.options.metadata)
        finally:
            self._link = None
            self._scrape_priority = ScrapePriority.IDLE
            await channel.close()

    def _tls(self) -> pb.Tls | None:
        if not self.options.advertise.is_tls:
            return None
        return pb.Tls(server_name=self.options.server_name, ca_pem=self.options.ca_pem)

    def _set_priority(self, priority: ScrapePriority) -> None:
        """Handle a message of the picker, with the scrape priority."""
        self._attempts.connected(self.options.picker)
        self._scrape_priority = priority


def _sent_once(options: AgentOptions) -> tuple[str, str]:
    """The part of the options that each stream sends once."""
    return options.ca_pem, options.api_key
