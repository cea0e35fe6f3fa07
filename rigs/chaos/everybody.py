"""Faults that concern everybody: of pickers, their processes, members, the engine and Envoys. They
are made one after the other, and each waits until all have found together again."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rigs.chaos.fleet import freeze, thaw
from rigs.chaos.script import OF_ENVOY, OF_MEMBERS, OF_PICKER, OF_PROCESSES, Action, Kind
from rigs.chaos.stage import Stage

STOP_GRACE_S = 10.0

PROCESSES = {
    Kind.KILL_CORE: ("core", signal.SIGKILL),
    Kind.FREEZE_CORE: ("core", signal.SIGSTOP),
    Kind.RESTART_CORE: ("core", signal.SIGTERM),
    Kind.KILL_SPARE: ("spare", signal.SIGKILL),
    Kind.FREEZE_SPARE: ("spare", signal.SIGSTOP),
    Kind.KILL_FRONT: ("front", signal.SIGKILL),
    Kind.FREEZE_FRONT: ("front", signal.SIGSTOP),
    Kind.RESTART_FRONT: ("front", signal.SIGTERM),
}
OF_LEADER = frozenset(
    {Kind.KILL_LEADER, Kind.FREEZE_LEADER, Kind.RESTART_LEADER, Kind.FREEZE_SUPERVISOR}
)
OF_ENGINE = frozenset({Kind.KILL_ENGINE, Kind.FREEZE_ENGINE, Kind.RESTART_ENGINE, Kind.LOSE_BOTH})
FREEZES = frozenset({Kind.FREEZE_LEADER, Kind.FREEZE_STANDBY})
RESTARTS = frozenset({Kind.RESTART_LEADER, Kind.RESTART_STANDBY})


class Everybody:
    """`note` is called with what was done and when it began, once it is over."""

    def __init__(
        self,
        stage: Stage,
        say: Callable[[str], None],
        note: Callable[[Action, float], None],
    ) -> None:
        self._stage = stage
        self._say = say
        self._note = note
        self._one_at_a_time = asyncio.Lock()
        self.acts: dict[Kind, Callable[[Action], Awaitable[bool]]] = {
            **dict.fromkeys((*OF_PICKER, Kind.PICKER_CLOCK), self._picker),
            **dict.fromkeys(OF_PROCESSES, self._process),
            **dict.fromkeys(OF_MEMBERS, self._member),
            **dict.fromkeys(OF_ENGINE, self._engine),
            **dict.fromkeys(OF_ENVOY, self._envoy),
        }

    async def _picker(self, action: Action) -> bool:
        async with self._one_at_a_time:
            self._say(str(action))
            stage, began_at = self._stage, time.monotonic()
            if action.kind is Kind.PICKER_CLOCK:
                stage.move_clock(await stage.core_pid(), action.seconds)
                return True
            [member] = stage.members
            assert member.picker is not None
            if action.kind is Kind.FREEZE_PICKER:
                freeze(member.picker)
                await asyncio.sleep(action.lasts_s)
                thaw(member.picker)
            else:
                if action.kind is Kind.KILL_PICKER:
                    member.picker.kill()
                    await member.picker.wait()
                else:
                    await member.picker.stop(STOP_GRACE_S)
                await asyncio.sleep(action.lasts_s)
                await member.start_picker()
            await stage.until_known()
            self._say(f"        the picker is back after {time.monotonic() - began_at:.1f} s")
            self._note(action, began_at)
        return True

    async def _process(self, action: Action) -> bool:
        """One of the picker's processes. A stopped one goes on, unless it was replaced by then."""
        role, number = PROCESSES[action.kind]
        async with self._one_at_a_time:
            stage, began_at = self._stage, time.monotonic()
            found = await stage.pids(role)
            if not found:
                return False
            pid = found[int(action.target * len(found))]
            self._say(f"{action} (process {pid})")
            os.kill(pid, number)
            if number is signal.SIGSTOP:
                await asyncio.sleep(action.lasts_s)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            await self._gather(action, began_at, 0 if number is signal.SIGSTOP else pid)
        return True

    async def _member(self, action: Action) -> bool:
        """All processes of a member, as if its machine was lost, or its supervisor alone."""
        async with self._one_at_a_time:
            stage = self._stage
            leader = await stage.leader()
            others = [one for one in stage.members if one is not leader]
            member = leader if action.kind in OF_LEADER else others[0]
            assert member.picker is not None
            self._say(f"{action} ({member.name})")
            began_at = time.monotonic()
            if action.kind is Kind.FREEZE_SUPERVISOR:
                freeze(member.picker)
                await asyncio.sleep(action.lasts_s)
                thaw(member.picker)
            elif action.kind in FREEZES:
                member.strike(signal.SIGSTOP)
                await asyncio.sleep(action.lasts_s)
                member.strike(signal.SIGCONT)
            else:
                if action.kind in RESTARTS:
                    await member.picker.stop(STOP_GRACE_S)
                else:
                    member.strike(signal.SIGKILL)
                    await member.picker.wait()
                await asyncio.sleep(action.lasts_s)
                await member.start_picker()
            await self._gather(action, began_at)
        return True

    async def _engine(self, action: Action) -> bool:
        """The engine, which comes back empty unless it was stopped; or it and the leader."""
        async with self._one_at_a_time:
            self._say(str(action))
            stage, began_at = self._stage, time.monotonic()
            leader = await stage.leader()
            engine = stage.engine
            assert engine is not None
            if action.kind is Kind.FREEZE_ENGINE:
                freeze(engine.child)
                await asyncio.sleep(action.lasts_s)
                thaw(engine.child)
            elif action.kind is Kind.LOSE_BOTH:
                await engine.end(signal.SIGKILL)
                await asyncio.sleep(action.lasts_s / 2)
                assert leader.picker is not None
                leader.strike(signal.SIGKILL)
                await leader.picker.wait()
                await asyncio.sleep(action.lasts_s / 2)
                await engine.start()
                await leader.start_picker()
            else:
                is_asked = action.kind is Kind.RESTART_ENGINE
                await engine.end(signal.SIGTERM if is_asked else signal.SIGKILL)
                await asyncio.sleep(action.lasts_s)
                await engine.start()
            await self._gather(action, began_at)
        return True

    async def _gather(self, action: Action, began_at: float, lost: int = 0) -> None:
        await self._stage.until_complete(lost)
        self._say(f"        all are there after {time.monotonic() - began_at:.1f} s")
        self._note(action, began_at)

    async def _envoy(self, action: Action) -> bool:
        async with self._one_at_a_time:
            stage, began_at = self._stage, time.monotonic()
            member = stage.members[int(action.target * len(stage.members))]
            self._say(f"{action} {member.name}")
            assert member.envoy is not None
            if action.kind is Kind.KILL_ENVOY:
                member.envoy.kill()
            else:
                os.kill(member.envoy.pid, signal.SIGTERM)
            await member.envoy.wait()
            await asyncio.sleep(action.lasts_s)
            await member.start_envoy(stage.mode)
            self._say(f"        Envoy is back after {time.monotonic() - began_at:.1f} s")
            self._note(action, began_at)
        return True
