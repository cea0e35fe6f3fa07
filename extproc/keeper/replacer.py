"""Starts the server of a model in another way, and goes back if that fails."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from extproc.keeper.machine import Machine
from extproc.keeper.model_status import Trial
from extproc.keeper.models_file import ModelEntry
from extproc.keeper.replacements import Replacements

GRACE_S: Final = 60.0
"""For stops and trials, beside the time of a load."""

log = logging.getLogger("coxswain.keeper")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """How it ended: `problem` is empty if it worked. `is_proved`: a server of it runs and has
    answered."""

    problem: str = ""
    is_proved: bool = False


class Replacer:
    """`file` has the entries of the keeper's file. Without `store` nothing may be replaced: a
    command runs with the keeper's rights. Belongs to one event loop."""

    def __init__(self, machine: Machine, store: Replacements | None) -> None:
        self._machine = machine
        self.file: Mapping[str, ModelEntry] = {}
        self._store = store
        self._before: dict[str, ModelEntry] = {}
        self._lock = asyncio.Lock()

    async def replace(
        self, name: str, cmd: Sequence[str], memory_mb: int | None, *, must_load: bool = False
    ) -> Replaced:
        """Use another command or memory from now on. With `must_load` a model that does not run is
        waited for, until it is wanted and has proved itself."""
        server = self._machine.servers.get(name)
        if server is None:
            return Replaced(problem=f"there is no model {name} here")
        content = server.entry.model_dump()
        try:
            entry = ModelEntry.model_validate(
                {
                    **content,
                    "cmd": list(cmd) or content["cmd"],
                    "memory_mb": content["memory_mb"] if memory_mb is None else memory_mb,
                }
            )
        except ValidationError as error:
            return Replaced(problem=error.errors()[0]["msg"])
        if entry.memory_mb > self._machine.memory_mb:
            return Replaced(
                problem=f"{entry.memory_mb} MiB are more than the machine's "
                f"{self._machine.memory_mb}"
            )
        return await self._to(name, entry, must_load=must_load)

    async def revert(self, name: str) -> Replaced:
        """Go back to what was there before the last replacement; without one nothing happens."""
        before = self._before.get(name)
        return Replaced() if before is None else await self._to(name, before)

    async def _to(self, name: str, entry: ModelEntry, *, must_load: bool = False) -> Replaced:
        if self._store is None:
            return Replaced(
                problem="its keeper lets nobody replace commands: start it with --allow-replace"
            )
        if self._lock.locked():
            return Replaced(problem="another model is being replaced on this machine")
        async with self._lock:
            before = self._machine.servers[name].entry
            log.info("replacing the command of %s", name)
            found = await self._exchange(name, before, entry, must_load=must_load)
            if not found.problem:
                try:
                    await asyncio.to_thread(self._store.put, name, self.file[name], entry)
                except OSError as error:
                    problem = f"{self._store.path} cannot be written: {error.strerror}"
                    await self._machine.exchange(name, before)
                    found = Replaced(problem=problem)
            if found.problem:
                log.warning("%s was not replaced: %s", name, found.problem)
            else:
                self._before[name] = before
            return found

    async def _exchange(
        self, name: str, before: ModelEntry, entry: ModelEntry, *, must_load: bool
    ) -> Replaced:
        is_running = name in self._machine.running
        trial = Trial(before) if is_running or must_load else None
        await self._machine.exchange(name, entry, trial)
        if trial is None:
            return Replaced()
        try:
            async with asyncio.timeout(entry.load_timeout_s + GRACE_S):
                problem = await asyncio.shield(trial.result)
        except TimeoutError:
            problem = "it had no memory or did not load in time"
            await self._machine.exchange(name, before)
        return Replaced(problem=problem or "", is_proved=not problem)
