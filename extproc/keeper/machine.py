"""All models of one machine: loads and unloads until the wanted ones are loaded.

Memory is never assigned twice: a model starts only when those that hold memory, together with
it, take no more than the machine's `memory_mb`, and none that excludes it holds any. A model whose
server ended by itself holds its memory while it is started again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from extproc.keeper.model_server import ModelServer
from extproc.keeper.model_status import ModelState, Trial
from extproc.keeper.models_file import ModelEntry

log = logging.getLogger("coxswain.keeper")


class Machine:
    """Belongs to one event loop. `changed` is called after each change of a model's state."""

    def __init__(self, name: str, memory_mb: int, changed: Callable[[], None]) -> None:
        self.name = name
        self.memory_mb = memory_mb
        self.servers: dict[str, ModelServer] = {}
        self._changed = changed
        self._wanted: tuple[str, ...] = ()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, ModelServer] = {}
        """By the names in `_tasks`. Those that were removed or replaced since are leaving."""
        self._is_stopping = False
        self._due: asyncio.Handle | None = None
        self._next: dict[str, tuple[ModelEntry, Trial | None]] = {}
        """What the servers that stop now are started with."""

    def update(self, memory_mb: int, servers: Mapping[str, ModelServer]) -> None:
        """These are the models from now on. Those that are the same objects as before run on; the
        servers of all others are unloaded after their requests, and start again where wanted."""
        self.memory_mb = memory_mb
        self.servers = dict(servers)
        self._wanted = tuple(name for name in self._wanted if name in self.servers)
        self.reconcile()

    @property
    def used_mb(self) -> int:
        """The memory of the models that hold some."""
        return sum(server.entry.memory_mb for server in self._running.values())

    @property
    def running(self) -> Collection[str]:
        """The models that have a server, or wait for its next start."""
        return self._tasks.keys()

    @property
    def waiting(self) -> Sequence[str]:
        """The wanted models that wait for memory, or for the end of the server before."""
        return [
            name
            for name in self._wanted
            if self._running.get(name) is not self.servers[name]
            and self.servers[name].status.state is not ModelState.FAILED
            and not self._is_stopping
        ]

    def want(self, models: Iterable[str], retried: Iterable[str] = ()) -> None:
        """Load these models and unload all others; unknown names are ignored. Of the `retried` ones
        earlier failures are forgotten."""
        for name in retried:
            if name in self.servers:
                self.servers[name].forgive()
        wanted = tuple(name for name in dict.fromkeys(models) if name in self.servers)
        if wanted != self._wanted:
            log.info("models that should be loaded: %s", ", ".join(wanted) or "none")
        self._wanted = wanted
        self.reconcile()

    async def exchange(self, name: str, entry: ModelEntry, trial: Trial | None = None) -> None:
        """Start the server of a model with `entry` from now on, on trial. If it runs, it drains and
        stops first, and is started again while it is wanted."""
        server = self.servers[name]
        task = self._tasks.get(name)
        if task is None:
            server.use(entry, trial)
            self.reconcile()
            return
        self._next[name] = entry, trial
        server.leave()
        await asyncio.wait({task})

    def changed(self) -> None:
        """A model's state changed: called by the servers."""
        self._changed()
        if self._due is None and not self._is_stopping:
            self._due = asyncio.get_running_loop().call_soon(self.reconcile)

    def reconcile(self) -> None:
        """Unload what is not wanted, and load in order what is wanted and fits."""
        self._due = None
        if self._is_stopping:
            return
        wanted = set(self._wanted)
        for name, server in self._running.items():
            if name not in wanted or self.servers.get(name) is not server or name in self._next:
                server.leave()
        assigned_mb = self.used_mb
        for name in self.waiting:
            server = self.servers[name]
            assigned_mb += server.entry.memory_mb  # also of one that waits: it is not overtaken
            is_free = name not in self._tasks and self.excluded_by(name).isdisjoint(self._tasks)
            if is_free and assigned_mb <= self.memory_mb:
                self._start(server)
        self._changed()

    def excluded_by(self, name: str) -> set[str]:
        """The models that must not be loaded together with this one."""
        own = set(self.servers[name].entry.exclusive_with)
        servers = (*self.servers.items(), *self._running.items())
        return own | {other for other, server in servers if name in server.entry.exclusive_with}

    def _start(self, server: ModelServer) -> None:
        task = asyncio.create_task(server.run(), name=f"keep {server.name}")
        self._tasks[server.name] = task
        self._running[server.name] = server
        task.add_done_callback(lambda done: self._ended(server.name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(name, None)
        server = self._running.pop(name, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("keeping %s failed", name, exc_info=error)
        if (following := self._next.pop(name, None)) is not None:
            entry, trial = following
            if server is not None and self.servers.get(name) is server:
                server.use(entry, trial)
            elif trial is not None:
                trial.end("the keeper's file was read again meanwhile")
        self.changed()

    async def stop(self, drain_s: float) -> None:
        """Unload every model: at most `drain_s` for running requests. No server is left."""
        self._is_stopping = True
        if self._due is not None:
            self._due.cancel()
        tasks = list(self._tasks.values())
        for server in self._running.values():
            server.leave()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=drain_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
