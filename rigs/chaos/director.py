"""Does what the script says, and writes down in which times nobody could know better."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from rigs.chaos.everybody import STOP_GRACE_S, Everybody
from rigs.chaos.fleet import Server, freeze, thaw
from rigs.chaos.front import Fault
from rigs.chaos.records import Window
from rigs.chaos.script import Action, Kind
from rigs.chaos.stage import Stage
from rigs.chaos.windows import window

ACTIVATE_S = 60.0

FAULTS = {
    Kind.SLOW_SERVER: Fault.SLOW,
    Kind.ERRORS_500: Fault.ERROR_500,
    Kind.ERRORS_503: Fault.ERROR_503,
    Kind.RESETS: Fault.RESET,
    Kind.GARBAGE: Fault.GARBAGE,
    Kind.HALF_JSON: Fault.HALF_JSON,
    Kind.ENDLESS: Fault.ENDLESS,
}


class Director:
    """`windows` and `done` are what it reports."""

    def __init__(self, stage: Stage, say: Callable[[str], None]) -> None:
        self.windows: list[Window] = []
        self.done: Counter[str] = Counter()
        self._stage = stage
        self._say = say
        self._engaged: set[Server] = set()
        self._unlisted: set[Server] = set()
        self._acts: dict[Kind, Callable[[Action], Awaitable[bool]]] = {
            Kind.ADD_SERVER: self._add,
            Kind.KILL_AGENT: self._agent,
            Kind.RESTART_AGENT: self._agent,
            Kind.FREEZE_AGENT: self._agent,
            Kind.AGENT_CLOCK: self._agent,
            **Everybody(stage, say, self._note).acts,
        }

    async def perform(self, action: Action) -> None:
        """Do it and undo it again. What finds nothing to be done to is not counted."""
        act = self._acts.get(action.kind, self._server)
        if await act(action):
            self.done[action.kind.value] += 1

    # Servers

    @asynccontextmanager
    async def _one(
        self, action: Action, *, has_agent: bool | None = None
    ) -> AsyncIterator[Server | None]:
        """A server to which nothing else is being done; two thirds stay free of troubles."""
        free = [
            one
            for one in self._stage.servers
            if one not in self._engaged and has_agent in (None, one.has_agent)
        ]
        if not free or 3 * (len(self._engaged) + 1) > 2 * len(self._stage.servers):
            yield None
            return
        server = free[int(action.target * len(free))]
        self._engaged.add(server)
        try:
            yield server
        finally:
            self._engaged.discard(server)

    async def _server(self, action: Action) -> bool:
        has_agent = False if action.kind is Kind.REMOVE_SERVER else None
        async with self._one(action, has_agent=has_agent) as server:
            if server is None:
                return False
            self._say(f"{action} ({server.name})")
            began_at = time.monotonic()
            match action.kind:
                case Kind.KILL_SERVER | Kind.RESTART_SERVER:
                    grace_s = STOP_GRACE_S if action.kind is Kind.RESTART_SERVER else 0.0
                    await self._stage.stop_server(server, grace_s)
                    await asyncio.sleep(action.lasts_s)
                    await self._stage.start_server(server)
                case Kind.FREEZE_SERVER:
                    freeze(server.child)
                    await asyncio.sleep(action.lasts_s)
                    thaw(server.child)
                case Kind.HIDE_SERVER:
                    server.front.hide(True)
                    await asyncio.sleep(action.lasts_s)
                    server.front.hide(False)
                case Kind.REMOVE_SERVER:
                    self._unlisted.add(server)
                    self._list()
                    await asyncio.sleep(action.lasts_s)
                    self._unlisted.discard(server)
                    self._list()
                case Kind.DRAIN_SERVER | Kind.DISABLE_SERVER:
                    await self._take_out(server, action)
                case kind:
                    server.front.fault = FAULTS[kind]
                    await asyncio.sleep(action.lasts_s)
                    server.front.fault = Fault.NONE
            self._note(action, began_at, server.address)
        return True

    async def _take_out(self, server: Server, action: Action) -> None:
        channel, admin = self._stage.admin_stub(int(100 * action.target))
        try:
            if action.kind is Kind.DISABLE_SERVER:
                await admin.Disable(pb.DisableRequest(address=server.address))
            else:
                call = admin.Drain(pb.DrainRequest(address=server.address, deadline_s=1.0))
                async for _ in call:
                    pass
            await asyncio.sleep(action.lasts_s)
        except grpc.aio.AioRpcError as error:
            self._say(f"        {action.kind.value}: {error.code().name}")
        try:
            await self._activate(admin, server)
        finally:
            await channel.close()

    async def _activate(self, admin: AdminStub, server: Server) -> None:
        """Put it back in. A picker that was lost meanwhile may have forgotten that it was out, and
        with fronts it has not."""
        give_up_at = time.monotonic() + ACTIVATE_S
        while True:
            try:
                await admin.Activate(pb.ActivateRequest(address=server.address))
            except grpc.aio.AioRpcError as error:
                if time.monotonic() > give_up_at:
                    raise
                self._say(f"        activate a server: {error.code().name}")
                await asyncio.sleep(0.5)
            else:
                return

    async def _add(self, action: Action) -> bool:
        self._say(str(action))
        await self._stage.add_server(2)
        self._list()
        return True

    def _list(self) -> None:
        self._stage.list_servers(
            [one for one in self._stage.servers if not one.has_agent and one not in self._unlisted]
        )

    # Agents

    async def _agent(self, action: Action) -> bool:
        async with self._one(action, has_agent=True) as server:
            if server is None or server.agent is None:
                return False
            self._say(f"{action} ({server.name})")
            if action.kind is Kind.KILL_AGENT:
                server.agent.kill()
                await asyncio.sleep(action.lasts_s)
                await self._stage.start_agent(server)
            elif action.kind is Kind.RESTART_AGENT:
                await server.agent.stop(STOP_GRACE_S)
                await asyncio.sleep(action.lasts_s)
                await self._stage.start_agent(server)
            elif action.kind is Kind.FREEZE_AGENT:
                freeze(server.agent)
                await asyncio.sleep(action.lasts_s)
                thaw(server.agent)
            else:
                self._stage.move_clock(server.agent.pid, action.seconds)
                await asyncio.sleep(action.lasts_s)
                self._stage.move_clock(server.agent.pid, 0.0)
        return True

    def _note(self, action: Action, began_at: float, server: str = "") -> None:
        noted = window(action.kind, began_at, time.monotonic(), server)
        if noted is not None:
            self.windows.append(noted)
