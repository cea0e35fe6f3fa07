"""The agents' service over grpc.aio: a thin shell around the registry and the streams' clocks.

Each stream has a reader, which passes observations to the core, and a writer, which sends due
messages: a changed scrape priority, a request for a scrape, and regularly a number, which keeps
the bounds of the times narrow.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Final

import grpc

from extproc.admin.agents.decode import read_hello, read_observation
from extproc.admin.agents.dependencies import AgentsDependencies
from extproc.admin.agents.liveness import AgentLiveness
from extproc.admin.agents.registry import AgentRegistry
from extproc.admin.agents.stream import AgentStream
from extproc.admin.auth.peer import peer_host
from extproc.admin.call_errors import CallError, Context, already, forbidden, invalid
from extproc.admin.handlers import handlers_of
from extproc.core.address import Address
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.settings import AgentsSettings

DESCRIPTOR: Final = pb.DESCRIPTOR.services_by_name["Agents"]
SERVICE: Final[str] = DESCRIPTOR.full_name

GATHER_S: Final = 0.02
"""New agents are taken into the fleet together: after a restart all of them come at once."""

log = logging.getLogger("coxswain.agents")


class AgentsService:
    """`coxswain.v1.Agents`. One instance belongs to one event loop; end it with `close`."""

    def __init__(
        self, dependencies: AgentsDependencies, settings: AgentsSettings | None = None
    ) -> None:
        settings = settings or AgentsSettings()
        self._dependencies = dependencies
        self._dispatcher = dependencies.dispatcher
        self.registry = AgentRegistry(settings.ttl_s, settings.forget_s)
        self._numbers = itertools.count(1)
        self._streams: dict[int, AgentStream] = {}
        self._liveness = AgentLiveness(dependencies, self.registry, self._streams, self._publish)
        self._gathering: asyncio.TimerHandle | None = None
        self._is_closed = False

    def renew(self, settings: AgentsSettings) -> None:
        """Use other settings from now on."""
        self.registry.ttl_s = settings.ttl_s
        self.registry.forget_s = settings.forget_s

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the service to this server."""
        server.add_generic_rpc_handlers((handlers_of(DESCRIPTOR, self),))

    def scrape_now(self, address: Address) -> None:
        """Ask the agent of `address`, if there is one, for a scrape now. Never blocks."""
        agent = self.registry.get(address)
        if agent is not None and agent.stream is not None:
            stream = self._streams[agent.stream]
            stream.scrape_now = True
            stream.scrape_priority = self._scrape_priority(address)
            stream.send()

    def close(self) -> None:
        """End every stream because the picker is shutting down. The fleet does not change."""
        self._is_closed = True
        self._liveness.stop()
        if self._gathering is not None:
            self._gathering.cancel()
        for stream in self._streams.values():
            stream.close(grpc.StatusCode.UNAVAILABLE, "the picker is shutting down; reconnect")

    async def Attach(  # noqa: N802  # gRPC names it
        self, messages: AsyncIterator[pb.AgentMessage | None], context: Context
    ) -> None:
        """One agent's stream; ends when either side leaves."""
        stream = AgentStream(
            next(self._numbers), self._dependencies.clock(), peer_host(context.peer())
        )
        self._streams[stream.number] = stream
        if self._is_closed:
            stream.close(grpc.StatusCode.UNAVAILABLE, "the picker is shutting down; reconnect")
        self._liveness.watch()
        await stream.run(
            context,
            stream.read(messages, partial(self._take, stream), "AgentMessage; see agent.proto"),
            stream.write(context, self._dependencies.clock),
            partial(self._forget, stream),
            log,
            "an agent",
        )

    def _take(self, stream: AgentStream, message: pb.AgentMessage) -> None:
        now = self._dependencies.clock()
        was_wrong = stream.clock.is_wrong
        written_after = stream.clock.written_after(message.echo, message.held_s, now)
        kind = message.WhichOneof("content")
        agent = stream.agent
        if kind == "hello":
            if agent is not None:
                raise invalid("hello: only the first message of a stream may be hello")
            self._attach(stream, message.hello, now)
            return
        if agent is None:
            raise invalid("the first message of a stream must be hello")
        if stream.clock.is_wrong and not was_wrong:
            log.warning(
                "the clock of the agent of %s runs fast; check that machine's clock", agent.address
            )
        if self.registry.heard(agent, now):
            log.info("the agent of %s sends messages again", agent.address)
            self._dependencies.reporting_changed()
            self.scrape_now(agent.address)  # observations from its silence are ignored
        if kind == "observation":
            self._check_unnamed(agent.address)  # another source may have it since
            observation = message.observation
            began_at, answered_at = stream.clock.date(
                written_after, now, observation.began_ago_s, observation.answered_ago_s
            )
            seen = read_observation(observation, agent.address, began_at, answered_at)
            # Its agent runs there.
            self._dependencies.observe(replace(seen, is_machine_on=True))
        elif kind == "deregistration" and not agent.is_leaving:
            log.info("the agent of %s deregisters", agent.address)
            self.registry.leave(agent)
            self._publish()
        self._answer(stream, agent.address)

    def _attach(self, stream: AgentStream, hello: pb.Hello, now: float) -> None:
        spec, trust = read_hello(hello)
        if rejection := self._dependencies.address_rejection(spec.address, stream.peer):
            raise forbidden(f"hello.address: {rejection}")
        self._check_unnamed(spec.address)
        before = self.registry.get(spec.address)
        old = None if before is None else before.stream
        try:
            agent, has_replaced = self.registry.attach(
                spec, hello.agent_id, stream.number, now, trust
            )
        except CallError as error:  # it tries again and again, which needs no line in the log
            stream.close(error.code, error.text)
            return
        stream.agent = agent
        if has_replaced:
            log.warning(
                "two agents report %s; the one that attached last replaces the other", spec.address
            )
        if before is None:
            log.info("an agent attached for %s%s", spec.address, spec.name and f" ({spec.name})")
        if old is not None:
            self._streams[old].close(
                grpc.StatusCode.ALREADY_EXISTS,
                f"another agent has taken over {spec.address}",
            )
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_S, self._publish)

    def _check_unnamed(self, address: Address) -> None:
        """Raise `CallError` if another source has the address."""
        if others := self._dependencies.others_naming(address):
            raise already(
                f"{address} is also in {', '.join(others)}: remove it there, or stop the agent"
            )

    def _publish(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        specs = self.registry.specs()
        fleet = self._dispatcher.fleet
        fresh = [spec.address for spec in specs if spec.address not in fleet]
        self._dependencies.publish(specs)
        for address in fresh:
            self.scrape_now(address)  # a new endpoint ignores earlier observations

    def _answer(self, stream: AgentStream, address: Address) -> None:
        """Send what a message changed, if anything."""
        scrape_priority = self._scrape_priority(address)
        if scrape_priority != stream.scrape_priority:
            stream.scrape_priority = scrape_priority
            stream.send()
        agent = stream.agent
        if agent is not None and agent.is_leaving and not stream.is_drained:
            fleet = self._dispatcher.fleet
            has_others = bool(fleet.sources_of(address))
            if has_others or not self._dispatcher.view.has_leases(address):
                stream.is_drained = True
                stream.send()

    def _scrape_priority(self, address: Address) -> pb.PickerMessage.ScrapePriority:
        if self._dispatcher.view.needs_frequent_scrapes(address):
            return pb.PickerMessage.SCRAPE_PRIORITY_HIGH
        if self._dispatcher.view.has_leases(address):
            return pb.PickerMessage.SCRAPE_PRIORITY_STEADY
        return pb.PickerMessage.SCRAPE_PRIORITY_IDLE

    def _forget(self, stream: AgentStream) -> None:
        del self._streams[stream.number]
        if stream.agent is not None and self.registry.detach(stream.agent, stream.number):
            self._dependencies.reporting_changed()
