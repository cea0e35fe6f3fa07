"""Does what the script says, and writes down in which times nobody could know better.

Faults that concern everybody, as those of pickers, their processes, members, the engine and Envoys,
are made one after the other, and each waits until all have found together again.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from signal import Signals

import grpc

from extproc.demo.process import Child
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from rigs.chaos.fleet import Server
from rigs.chaos.front import Fault
from rigs.chaos.records import Window
from rigs.chaos.script import (
    GLOBAL,
    OF_AGENTS,
    OF_ENVOY,
    OF_MEMBERS,
    OF_PICKER,
    OF_PROCESSES,
    Action,
    Kind,
)
from rigs.chaos.stage import Stage
from rigs.chaos.windows import window

STOP_GRACE_S = 10.0
ACTIVATE_S = 60.0
OF_LEADER = frozenset(
    {Kind.KILL_LEADER, Kind.FREEZE_LEADER, Kind.RESTART_LEADER, Kind.FREEZE_SUPERVISOR}
)
OF_ENGINE = frozenset({Kind.KILL_ENGINE, Kind.FREEZE_ENGINE, Kind.RESTART_ENGINE, Kind.LOSE_BOTH})
ALONE = GLOBAL | {Kind.PICKER_CLOCK}


async def lose(
    action: Action,
    child: Child | None,
    start: Callable[[], Awaitable[object]],
    *,
    strike: Callable[[Signals], None] | None = None,
    ended: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Freeze a child for the time of the action, or kill it or end it in peace, call `ended`, and
    start it again after that time. `strike` signals all that is lost with it."""
    assert child is not None
    strike = strike or partial(_signal, child)
    match action.kind.signal:
        case Signals.SIGSTOP:
            strike(Signals.SIGSTOP)
            await asyncio.sleep(action.lasts_s)
            strike(Signals.SIGCONT)
            return
        case Signals.SIGTERM:
            await child.stop(STOP_GRACE_S)
        case number:
            strike(number)
            await child.wait()
    if ended is not None:
        await ended()
    await asyncio.sleep(action.lasts_s)
    await start()


def _signal(child: Child, number: Signals) -> None:
    if number is Signals.SIGKILL:
        child.kill()
    elif child.is_running:
        os.kill(child.pid, number)


class Director:
    """`windows` and `done` are what it reports."""

    def __init__(self, stage: Stage, say: Callable[[str], None]) -> None:
        self.windows: list[Window] = []
        self.done: Counter[str] = Counter()
        self._stage = stage
        self._say = say
        self._engaged: set[Server] = set()
        self._unlisted: set[Server] = set()
        self._one_at_a_time = asyncio.Lock()
        self._acts: dict[Kind, Callable[[Action], Awaitable[bool]]] = {
            Kind.ADD_SERVER: self._add,
            **dict.fromkeys((*OF_AGENTS, Kind.AGENT_CLOCK), self._agent),
            **dict.fromkeys(OF_PICKER, self._picker),
            Kind.PICKER_CLOCK: self._picker_clock,
            **dict.fromkeys(OF_PROCESSES, self._process),
            **dict.fromkeys(OF_MEMBERS, self._member),
            **dict.fromkeys(OF_ENGINE, self._engine),
            **dict.fromkeys(OF_ENVOY, self._envoy),
        }

    async def perform(self, action: Action) -> None:
        """Do it when its time comes, and undo it again. What finds nothing to be done to is not
        counted."""
        await asyncio.sleep(action.at_s)
        act = self._acts.get(action.kind, self._server)
        turn: AbstractAsyncContextManager[None] = nullcontext()
        if action.kind in ALONE:
            turn = self._one_at_a_time
        async with turn:
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
                case Kind.KILL_SERVER | Kind.RESTART_SERVER | Kind.FREEZE_SERVER:
                    start = partial(self._stage.start_server, server)
                    await lose(action, server.child, start, ended=server.front.close)
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
                    server.front.fault = Fault[kind.name]
                    await asyncio.sleep(action.lasts_s)
                    server.front.fault = Fault.NONE
            self._note(action, began_at, server.address)
        return True

    async def _take_out(self, server: Server, action: Action) -> None:
        channel, admin = self._stage.admin_stub(int(100 * action.target))
        async with channel:
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
            await self._activate(admin, server)

    async def _activate(self, admin: AdminStub, server: Server) -> None:
        """Put it back in. A picker that was lost meanwhile may have forgotten that it was out, and
        with fronts it has not."""
        async with asyncio.timeout(ACTIVATE_S):
            while True:
                try:
                    await admin.Activate(pb.ActivateRequest(address=server.address))
                except grpc.aio.AioRpcError as error:
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
            if action.kind is Kind.AGENT_CLOCK:
                self._stage.move_clock(server.agent.pid, action.seconds)
                await asyncio.sleep(action.lasts_s)
                self._stage.move_clock(server.agent.pid, 0.0)
            else:
                await lose(action, server.agent, partial(self._stage.start_agent, server))
        return True

    # Everybody

    async def _picker(self, action: Action) -> bool:
        [member] = self._stage.members
        async with self._noting(action, back="the picker is back"):
            await lose(action, member.picker, member.start_picker)
            await self._stage.until_known()
        return True

    async def _picker_clock(self, action: Action) -> bool:
        self._say(str(action))
        self._stage.move_clock(await self._stage.core_pid(), action.seconds)
        return True

    async def _process(self, action: Action) -> bool:
        """One of the picker's processes. A stopped one goes on, unless it was replaced by then."""
        number, role = action.kind.signal, action.kind.name.rpartition("_")[2].lower()
        found = await self._stage.pids(role)
        if not found:
            return False
        pid = found[int(action.target * len(found))]
        async with self._noting(action, f" (process {pid})"):
            os.kill(pid, number)
            if number is Signals.SIGSTOP:
                await asyncio.sleep(action.lasts_s)
                with suppress(ProcessLookupError):
                    os.kill(pid, Signals.SIGCONT)
            await self._stage.until_complete(0 if number is Signals.SIGSTOP else pid)
        return True

    async def _member(self, action: Action) -> bool:
        """All processes of a member, as if its machine was lost, or its supervisor alone."""
        leader = await self._stage.leader()
        others = [one for one in self._stage.members if one is not leader]
        member = leader if action.kind in OF_LEADER else others[0]
        strike = None if action.kind is Kind.FREEZE_SUPERVISOR else member.strike
        async with self._noting(action, f" ({member.name})"):
            await lose(action, member.picker, member.start_picker, strike=strike)
            await self._stage.until_complete()
        return True

    async def _engine(self, action: Action) -> bool:
        """The engine, which comes back empty unless it was stopped; or it and the leader."""
        engine, leader = self._stage.engine, await self._stage.leader()
        assert engine is not None
        async with self._noting(action):
            if action.kind is Kind.LOSE_BOTH:
                assert engine.child is not None and leader.picker is not None
                engine.child.kill()
                await engine.child.wait()
                await asyncio.sleep(action.lasts_s / 2)
                leader.strike(Signals.SIGKILL)
                await leader.picker.wait()
                await asyncio.sleep(action.lasts_s / 2)
                await engine.start()
                await leader.start_picker()
            else:
                await lose(action, engine.child, engine.start)
            await self._stage.until_complete()
        return True

    async def _envoy(self, action: Action) -> bool:
        stage = self._stage
        member = stage.members[int(action.target * len(stage.members))]
        async with self._noting(action, f" {member.name}", back="Envoy is back"):
            await lose(action, member.envoy, partial(member.start_envoy, stage.mode))
        return True

    @asynccontextmanager
    async def _noting(
        self, action: Action, whom: str = "", *, back: str = "all are there"
    ) -> AsyncIterator[None]:
        """Say what is done, and after it how long it took; note its window."""
        self._say(f"{action}{whom}")
        began_at = time.monotonic()
        yield
        self._say(f"        {back} after {time.monotonic() - began_at:.1f} s")
        self._note(action, began_at)

    def _note(self, action: Action, began_at: float, server: str = "") -> None:
        noted = window(action.kind, began_at, time.monotonic(), server)
        if noted is not None:
            self.windows.append(noted)
