"""Replaces the command of a model on one machine after the other.

The first machine must prove the new command before the next is touched: its server is healthy and
has completed a prompt. If one fails, it has gone back by itself, and those before it are sent back.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from extproc.admin.keepers.service import KeepersService, NoKeeperError
from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.wanted_models import PlacementError
from extproc.pb.coxswain.v1 import keeper_pb2 as pb

ATTACH_S: Final = 30.0
POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happened on a machine, for people."""

    machine: str
    text: str
    is_end: bool = False
    is_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`model` is the name in the keepers' files; without `cmd` or memory that stays as it is."""

    model: str
    machines: Sequence[str]
    cmd: Sequence[str]
    memory_mb: int | None


class Rollout:
    """One replacement over all machines of a plan; `load` has a machine load the model."""

    def __init__(
        self, keepers: KeepersService, load: Callable[[KeptMachine, str], None], plan: Plan
    ) -> None:
        self._keepers = keepers
        self._load = load
        self._plan = plan

    def order(self) -> list[str]:
        """Where it is loaded first: there the new command proves itself without another swap."""
        return sorted(
            self._plan.machines,
            key=lambda name: (self._state(name) is not KeptState.LOADED, name),
        )

    def preview(self) -> list[Step]:
        """What a run would do, without doing it."""
        steps = []
        for number, name in enumerate(self.order()):
            state = self._state(name)
            if state is None or not self._is_connected(name):
                steps.append(Step(machine=name, text="its keeper is not connected: it would fail"))
            elif state is KeptState.LOADED:
                text = "drains, stops, starts again and must complete a prompt"
                steps.append(Step(machine=name, text=text))
            elif number == 0:
                steps.append(Step(machine=name, text="is loaded and must complete a prompt"))
            else:
                steps.append(Step(machine=name, text="not loaded: its next load uses the command"))
        return [*steps, Step(machine="", text="nothing was changed", is_end=True)]

    async def run(self) -> AsyncGenerator[Step, None]:
        """Every step as it happens; the last one has `is_end`. Never raises."""
        done: list[str] = []
        for name in self.order():
            yield Step(machine=name, text="replacing: what runs drains, the new command must prove")
            problem, text = await self._replace(name, is_first=not done)
            if not problem:
                done.append(name)
                yield Step(machine=name, text=text)
                continue
            yield Step(machine=name, text=f"failed, and went back: {problem}")
            async for step in self._go_back(done):
                yield step
            text = f"{name} failed: {problem}"
            yield Step(machine="", text=text, is_end=True, is_failed=True)
            return
        yield Step(machine="", text=f"{self._plan.model} was replaced", is_end=True)

    async def _replace(self, name: str, *, is_first: bool) -> tuple[str, str]:
        """The problem, if there is one, and what happened. After a problem it has gone back."""
        plan = self._plan
        must_load = is_first and self._state(name) is not KeptState.LOADED
        request = pb.ReplaceRequest(
            model=plan.model, cmd=plan.cmd, memory_mb=plan.memory_mb, must_load=must_load
        )
        try:
            asking = asyncio.ensure_future(self._keepers.replace(name, request))
            try:
                await asyncio.sleep(0)
                machine = self._keepers.find(name)
                if must_load and machine is not None:
                    self._load(machine, plan.model)
                result = await asking
            finally:
                asking.cancel()
            if result.problem:
                return result.problem, ""
            await self._until_attached(name)
        except (NoKeeperError, PlacementError) as error:
            return str(error), ""
        except TimeoutError:
            return "its keeper did not come back", ""
        proved = "and it has completed a prompt" if result.is_proved else "it is not loaded now"
        return "", f"replaced, {proved}"

    async def _go_back(self, done: Sequence[str]) -> AsyncGenerator[Step, None]:
        for name in reversed(done):
            request = pb.ReplaceRequest(model=self._plan.model, is_revert=True)
            try:
                result = await self._keepers.replace(name, request)
                text = f"could not go back: {result.problem}" if result.problem else "went back"
            except NoKeeperError as error:
                text = f"could not go back: {error}"
            yield Step(machine=name, text=text)

    async def _until_attached(self, name: str) -> None:
        """A keeper attaches again if what it said of its models is not so any more."""
        await asyncio.sleep(POLL_S)
        async with asyncio.timeout(ATTACH_S):
            while True:
                machine = self._keepers.find(name)
                if machine is not None and machine.is_connected and machine.has_reported:
                    return
                await asyncio.sleep(POLL_S)

    def _state(self, name: str) -> KeptState | None:
        machine = self._keepers.find(name)
        status = None if machine is None else machine.statuses.get(self._plan.model)
        return None if status is None else status.state

    def _is_connected(self, name: str) -> bool:
        machine = self._keepers.find(name)
        return machine is not None and machine.is_connected
