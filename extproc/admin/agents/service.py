"""The agents' service over grpc.aio: a thin shell around the roster and the streams' clocks.

Each stream has a reader, which brings the looks to the core, and a writer, which sends what is
due: attention that changed, a wish for a look, now and then a number to keep the times narrow.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc

from extproc.admin.agents.reading import MessageError, read_hello, read_look
from extproc.admin.agents.roster import Agent, CrowdedError, Roster, TakenError
from extproc.admin.agents.stream_clock import StreamClock, TimesError
from extproc.admin.handlers import handlers_of
from extproc.core.observation import Issue, Observation, Sight
from extproc.pb.coxswain.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from extproc.core.address import Address
    from extproc.core.dispatcher import Dispatcher
    from extproc.core.endpoint import EndpointSpec

DESCRIPTOR: Final = pb.DESCRIPTOR.services_by_name["Agents"]
SERVICE: Final[str] = DESCRIPTOR.full_name

SWEEP_S: Final = 0.25
NUMBER_EVERY_S: Final = 2.0
"""How often an agent hears from us at least: it takes our silence for a dead connection."""
DEAF_AFTER_S: Final = 1.0
"""A sweep that is later than this shows that our own loop stood still."""
CLOSE_AFTER_S: Final = 30.0
"""A stream that is silent for so long is half open: nobody will ever speak there."""
WRITE_S: Final = 1.0
GATHER_S: Final = 0.02
"""New agents are taken into the fleet together: after a restart all of them come at once."""

log = logging.getLogger("coxswain.agents")

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsOptions:
    """In seconds: silence after which an endpoint is down, and after which it is forgotten."""

    ttl_s: float = 3.0
    forget_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsSurroundings:
    """What the service needs of the picker; all are called from the event loop.

    `publish` is told all endpoints that agents name. `observe` is told each look. `lost` is
    told that nobody reports an address any more, or again: somebody else may have to look.
    """

    dispatcher: Dispatcher
    clock: Callable[[], float]
    publish: Callable[[list[EndpointSpec]], None]
    observe: Callable[[Observation], None]
    reporting_changed: Callable[[], None] = lambda: None
    is_looked_at: Callable[[Address], bool] = lambda _: False
    """Whether the picker itself can look at it, when its agent does not."""


@dataclass(slots=True, eq=False)
class _Stream:
    number: int
    clock: StreamClock = field(default_factory=StreamClock)
    agent: Agent | None = None
    attention: pb.PickerMessage.Attention = pb.PickerMessage.ATTENTION_UNSPECIFIED
    look_now: bool = False
    is_drained: bool = False
    is_number_due: bool = True
    sent_at: float = 0.0
    is_over: bool = False
    end: tuple[grpc.StatusCode, str] | None = None
    due: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self) -> None:
        """Let the writer send a message now."""
        self.is_number_due = True
        self.due.set()

    def close(self, code: grpc.StatusCode, text: str) -> None:
        """End it from our side."""
        if self.end is None:
            self.end = (code, text)
            self.due.set()


class AgentsService:
    """`coxswain.v1.Agents`. One instance belongs to one event loop; end it with `close`."""

    def __init__(self, around: AgentsSurroundings, options: AgentsOptions | None = None) -> None:
        options = options or AgentsOptions()
        self._around = around
        self._dispatcher = around.dispatcher
        self.roster = Roster(options.ttl_s, options.forget_s)
        self._numbers = itertools.count(1)
        self._streams: dict[int, _Stream] = {}
        self._gathering: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self._is_closed = False

    def renew(self, options: AgentsOptions) -> None:
        """Other options from now on."""
        self.roster.ttl_s = options.ttl_s
        self.roster.forget_s = options.forget_s

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on this server, beside whatever else it serves."""
        server.add_generic_rpc_handlers((handlers_of(DESCRIPTOR, self),))

    def poke(self, address: Address) -> None:
        """Ask the agent of `address`, if there is one, for a look now. Never blocks."""
        agent = self.roster.get(address)
        if agent is not None and agent.stream is not None:
            stream = self._streams[agent.stream]
            stream.look_now = True
            stream.attention = self._attention(address)
            stream.send()

    def close(self) -> None:
        """End every stream: the picker goes down. The fleet stays as it is."""
        self._is_closed = True
        for timer in (self._gathering, self._sweeping):
            if timer is not None:
                timer.cancel()
        for stream in self._streams.values():
            stream.close(grpc.StatusCode.UNAVAILABLE, "the picker goes down; come back")

    async def Attach(  # noqa: N802  # gRPC names it
        self, messages: AsyncIterator[pb.AgentMessage | None], context: Context
    ) -> None:
        """One agent's stream; ends when either side leaves."""
        stream = _Stream(next(self._numbers))
        self._streams[stream.number] = stream
        if self._is_closed:
            stream.close(grpc.StatusCode.UNAVAILABLE, "the picker goes down; come back")
        self._sweep_soon()
        reader = asyncio.create_task(self._read(stream, messages))
        writer = asyncio.create_task(self._write(stream, context))
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            for task in (reader, writer):
                if task.done():
                    task.result()
        except (MessageError, TimesError) as error:
            log.warning("an agent was sent away: %s", error)
            stream.close(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except TakenError as error:
            stream.close(grpc.StatusCode.ALREADY_EXISTS, str(error))
        except CrowdedError as error:
            stream.close(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        finally:
            self._forget(stream)
            reader.cancel()
            # A write that is cut off may take the stream's status with it, so it gets a moment.
            stream.is_over = True
            stream.due.set()
            await asyncio.wait((writer,), timeout=WRITE_S)
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
        if stream.end is not None:
            await context.abort(*stream.end)

    async def _read(self, stream: _Stream, messages: AsyncIterator[pb.AgentMessage | None]) -> None:
        async for message in messages:
            if message is None:
                raise MessageError("these bytes are no message of an agent; see agent.proto")
            if stream.end is not None:
                return
            self._take(stream, message, self._around.clock())

    def _take(self, stream: _Stream, message: pb.AgentMessage, now: float) -> None:
        was_wrong = stream.clock.is_wrong
        written_after = stream.clock.written_after(message.echo, message.held_s, now)
        kind = message.WhichOneof("content")
        agent = stream.agent
        if kind == "hello":
            if agent is not None:
                raise MessageError("hello: it is said once on a stream")
            self._attach(stream, message.hello, now)
            return
        if agent is None:
            raise MessageError("the first message of a stream is hello")
        if stream.clock.is_wrong and not was_wrong:
            log.warning("the clock of the agent of %s runs fast: look after it", agent.address)
        if self.roster.heard(agent, now):
            log.info("the agent of %s is heard again", agent.address)
            self._around.reporting_changed()
            self.poke(agent.address)  # a look that began in its silence is no news
        if kind == "look":
            look = message.look
            began_at, answered_at = stream.clock.date(
                written_after, now, look.began_ago_s, look.answered_ago_s
            )
            self._around.observe(read_look(look, agent.address, began_at, answered_at))
        elif kind == "leaving" and not agent.is_leaving:
            log.info("the agent of %s takes its leave", agent.address)
            self.roster.leave(agent)
            self._publish()
        self._answer(stream, agent.address)

    def _attach(self, stream: _Stream, hello: pb.Hello, now: float) -> None:
        spec = read_hello(hello)
        before = self.roster.get(spec.address)
        old = None if before is None else before.stream
        agent, has_ousted = self.roster.attach(spec, hello.agent_id, stream.number, now)
        stream.agent = agent
        if has_ousted:
            log.warning("two agents report %s; the one that came last does", spec.address)
        if before is None:
            log.info("an agent reports %s%s", spec.address, spec.name and f" ({spec.name})")
        if old is not None:
            self._streams[old].close(
                grpc.StatusCode.ALREADY_EXISTS,
                f"another agent reports {spec.address} from now on",
            )
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_S, self._publish)

    def _publish(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        specs = self.roster.specs()
        fleet = self._dispatcher.fleet
        fresh = [spec.address for spec in specs if spec.address not in fleet]
        self._around.publish(specs)
        for address in fresh:
            self.poke(address)  # new books take no look that began before they were opened

    def _answer(self, stream: _Stream, address: Address) -> None:
        """Send what a message changed, if anything."""
        attention = self._attention(address)
        if attention != stream.attention:
            stream.attention = attention
            stream.send()
        agent = stream.agent
        if agent is not None and agent.is_leaving and not stream.is_drained:
            fleet = self._dispatcher.fleet
            has_others = bool(fleet.sources_of(address))
            if has_others or not self._dispatcher.has_leases(address):
                stream.is_drained = True
                stream.send()

    def _attention(self, address: Address) -> pb.PickerMessage.Attention:
        if self._dispatcher.is_restless(address):
            return pb.PickerMessage.ATTENTION_RESTLESS
        if self._dispatcher.has_leases(address):
            return pb.PickerMessage.ATTENTION_STEADY
        return pb.PickerMessage.ATTENTION_IDLE

    async def _write(self, stream: _Stream, context: Context) -> None:
        number = 0
        while stream.end is None and not stream.is_over:
            if stream.is_number_due:
                number += 1
                message = pb.PickerMessage(
                    number=number,
                    attention=stream.attention,
                    look_now=stream.look_now,
                    is_drained=stream.is_drained,
                )
                stream.is_number_due = stream.look_now = False
                stream.sent_at = self._around.clock()
                stream.clock.sent(number, stream.sent_at)
                await context.write(message)
                continue
            stream.due.clear()
            await stream.due.wait()

    def _forget(self, stream: _Stream) -> None:
        del self._streams[stream.number]
        if stream.agent is not None and self.roster.detach(stream.agent, stream.number):
            self._around.reporting_changed()

    # Silence

    def _sweep_soon(self) -> None:
        if self._sweeping is None and not self._is_closed:
            self._swept_at = self._around.clock()
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Find who has fallen silent. Runs while there is any agent or stream."""
        self._sweeping = None
        now = self._around.clock()
        late_s = now - self._swept_at - SWEEP_S
        if late_s > DEAF_AFTER_S:
            self.roster.excuse(late_s)
        silent, forgotten = self.roster.expire(now)
        if silent or forgotten:
            self._around.reporting_changed()
        for agent in silent:
            self._miss(agent, now)
        if forgotten:
            for agent in forgotten:
                log.info("the agent of %s is forgotten", agent.address)
            self._publish()
        for stream in self._streams.values():
            agent_or_none = stream.agent
            heard_at = agent_or_none.heard_at if agent_or_none is not None else stream.sent_at
            if now - heard_at > CLOSE_AFTER_S:
                stream.close(grpc.StatusCode.UNAVAILABLE, "nothing was heard for too long")
            elif now - stream.sent_at >= NUMBER_EVERY_S:
                stream.send()
        if self._streams or len(self.roster):
            self._sweep_soon()

    def _miss(self, agent: Agent, now: float) -> None:
        address = agent.address
        if self._around.is_looked_at(address):
            log.warning("the agent of %s is silent; the picker looks there itself", address)
            return
        log.warning("the agent of %s is silent; the endpoint counts as down", address)
        self._around.observe(
            Observation(
                address=address,
                began_at=now,
                answered_at=now,
                sight=Sight.UNREACHABLE,
                issues=(
                    Issue(
                        code="agent-silent",
                        message=f"its agent has said nothing for {self.roster.ttl_s:g} s",
                        remedy="see whether `coxswain agent` runs there and reaches this picker",
                    ),
                ),
            )
        )
