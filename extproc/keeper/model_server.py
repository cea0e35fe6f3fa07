"""One model: from being wanted to being unloaded.

    unloaded -> loading -> loaded -> unloading -> unloaded
                  ^ |         |
                  | v         v
               restarting <---+     after an exit; `failed` after `MAX_FAILURES` of them in a row

While its server is loaded an agent reports it to the picker, through restarts, too. An unload
first deregisters it: the picker sends no new requests and says when the last one has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import httpx

from extproc.core.address import Address
from extproc.core.observation import Issue, Observation, ScrapeStatus, is_router
from extproc.keeper.command import saves_slots, server_command
from extproc.keeper.log_ring import LogRing
from extproc.keeper.models_file import ModelEntry
from extproc.keeper.server_process import ServerProcess
from extproc.keeper.slot_cache import Server, SlotCache
from extproc.keeper.slot_store import SlotStore
from extproc.keeper.trial import Trial, prove
from scraper.agent import Agent, AgentOptions
from scraper.target import EndpointTarget

READY_POLL_S: Final = 0.1
REQUEST_TIMEOUT_S: Final = 5.0
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
MAX_FAILURES: Final = 5
STABLE_S: Final = 60.0
"""A server that has served for this long has recovered: earlier failures are forgotten."""
UNRESPONSIVE_S: Final = 60.0
"""A server that gives no usable answer for this long is restarted."""
FOREIGN_S: Final = 10.0
"""How long an unload waits for requests that bypass the picker."""
UNCONFIRMED_S: Final = 600.0
"""How long it waits for busy slots if the picker did not say that its requests have ended."""
TAIL_LINES: Final = 15
LATE_S: Final = 7 * 24 * 3600.0

log = logging.getLogger("coxswain.keeper")

MakeAgent = Callable[[EndpointTarget, str, Callable[[Observation], Observation]], Agent]
"""Makes the agent of a target with a name; the last argument edits its observations."""


class ModelState(Enum):
    """The state of one model on this machine."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"
    RESTARTING = "restarting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """What others see of a model. `since` is monotonic; `load_s` is None before the first load.
    `detail` has the last lines of the log where there is a problem."""

    name: str
    state: ModelState
    since: float
    load_s: float | None
    exits: int
    problem: str
    detail: str


class ModelServer:
    """`run` it as a task each time it is wanted, and end it with `leave`. Belongs to one event
    loop; `changed` is called after each change of its status."""

    def __init__(
        self,
        name: str,
        entry: ModelEntry,
        address: Address,
        *,
        endpoint_name: str,
        make_agent: MakeAgent,
        changed: Callable[[], None],
        slot_store: SlotStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `slot_store` its prompt caches are kept there while it is not loaded."""
        self.name = name
        self.entry = entry
        self.address = address
        self.log = LogRing()
        self._slot_store = slot_store
        self._slot_cache = self._new_slot_cache()
        self._trial: Trial | None = None
        self._endpoint_name = endpoint_name
        self._make_agent = make_agent
        self._changed = changed
        self._clock = clock
        self._leaving = asyncio.Event()
        self._hung = asyncio.Event()
        self._failing_since: float | None = None
        self._failures = 0
        self._process: ServerProcess | None = None
        self._agent: Agent | None = None
        self._agent_task: asyncio.Task[None] | None = None
        self._busy: int | None = None
        self.status = ModelStatus(
            name=name,
            state=ModelState.UNLOADED,
            since=clock(),
            load_s=None,
            exits=0,
            problem="",
            detail="",
        )

    def _new_slot_cache(self) -> SlotCache | None:
        if self._slot_store is None or saves_slots(self.entry):
            return None
        say: Callable[[str], None] = lambda text: self.log.add(f"[keeper] {text}")  # noqa: E731
        return SlotCache(self._slot_store, self.name, say)

    def use(self, entry: ModelEntry, trial: Trial | None = None) -> None:
        """Start the next server with `entry`, while none runs. With a trial it must prove itself
        when it has loaded, or the model goes back."""
        self.entry = entry
        self._slot_cache = self._new_slot_cache()
        self._trial = trial
        self.forgive()

    def _fail_trial(self, problem: str) -> bool:
        """Go back to what was there before; False if nothing was on trial."""
        trial, self._trial = self._trial, None
        if trial is None:
            return False
        self.log.add(f"[keeper] {problem}; going back to the command before")
        self.use(trial.before)
        trial.end(problem)
        return True

    @property
    def pid(self) -> int | None:
        """The process id of the server's guard, None while none runs."""
        return None if self._process is None else self._process.pid

    @property
    def is_active(self) -> bool:
        """Whether it has memory, or may take it again without being asked."""
        return self.status.state not in (ModelState.UNLOADED, ModelState.FAILED)

    def forgive(self) -> None:
        """Forget its failures: an operator asked for it."""
        self._failures = 0
        if self.status.state is ModelState.FAILED:
            self._set(ModelState.UNLOADED)

    def leave(self) -> None:
        """End `run` when no request runs there any more."""
        self._leaving.set()

    async def run(self) -> None:
        """Load it and keep it loaded until `leave`, or until it has failed too often. Cancelled, it
        stops the server at once."""
        self._leaving.clear()
        self._set(ModelState.LOADING)
        try:
            while (failure := await self._serve()) is not None:
                if not await self._pause_after(failure):
                    break
        finally:
            self._fail_trial("it was unloaded before it had proved itself")
            await self._end_agent()
            await self._stop_process()
            if self.status.state is not ModelState.FAILED:
                self._set(ModelState.UNLOADED)

    # One run of its server

    async def _serve(self) -> str | None:
        """Start the server and watch it. Returns why it ended, None after `leave`."""
        began_at = self._clock()
        self._hung.clear()
        self._failing_since = None
        if not _is_free(self.address):
            return f"another process listens on {self.address}"
        self._set(ModelState.LOADING)
        key = self._api_key()
        if self.entry.api_key_env and not key:
            return f"the environment variable {self.entry.api_key_env} is empty or not set"
        self.log.add(f"[keeper] loading {self.name} on {self.address}")
        cache = self._slot_cache
        command = server_command(self.entry, self.address, "" if cache is None else cache.folder)
        process = await ServerProcess.start(
            command, self.entry.env, self.log, is_private=cache is not None
        )
        self._process = process
        ended = await self._first_of(
            process.wait(),
            self._leaving.wait(),
            self._until_ready(),
            timeout_s=self.entry.load_timeout_s,
        )
        if ended is None:
            await self._stop_process()
            return f"it was not ready after {self.entry.load_timeout_s:g} s"
        if ended == 0:
            return process.how_it_ended()
        if ended == 1:
            return None
        if self._trial is not None and (problem := await self._prove()) is not None:
            return problem
        if cache is not None:
            ended = await self._first_of(
                process.wait(), self._leaving.wait(), self._restore_slots(cache)
            )
            if ended == 0:
                return process.how_it_ended()
            if ended == 1:
                return None
        now = self._clock()
        log.info("%s is loaded after %.1f s", self.name, now - began_at)
        self._set(ModelState.LOADED, load_s=now - began_at)
        self._begin_agent(key)
        ended = await self._first_of(process.wait(), self._leaving.wait(), self._hung.wait())
        if self._clock() - now >= STABLE_S:
            self._failures = 0
        if ended == 1:
            await self._drain(process)
            return None
        if ended == 2:
            await self._stop_process()
            return f"it gave no usable answer for {UNRESPONSIVE_S:g} s"
        return process.how_it_ended()

    async def _prove(self) -> str | None:
        """Have it complete a prompt before the picker hears of it. What went wrong, if it did."""
        async with self._client() as client:
            problem = await prove(client)
        if problem is None and self._trial is not None:
            self._trial.end(None)
            self._trial = None
        return problem

    async def _first_of(
        self, *waits: Coroutine[Any, Any, object], timeout_s: float | None = None
    ) -> int | None:
        """The index of the first wait that ended, None after the timeout."""
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            done = next((index for index, task in enumerate(tasks) if task.done()), None)
            if done is not None:
                tasks[done].result()
            return done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_ready(self) -> None:
        async with self._client() as client:
            while True:
                with suppress(httpx.HTTPError):
                    if (await client.get("/health")).status_code == httpx.codes.OK:
                        return
                await asyncio.sleep(READY_POLL_S)

    def _client(self) -> httpx.AsyncClient:
        key = self._api_key()
        return httpx.AsyncClient(
            base_url=f"http://{self.address}",
            timeout=REQUEST_TIMEOUT_S,
            trust_env=False,
            headers={"authorization": f"Bearer {key}"} if key else {},
        )

    def _api_key(self) -> str:
        return os.environ.get(self.entry.api_key_env or "", "").strip()

    async def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    # Failures

    async def _pause_after(self, failure: str) -> bool:
        """Wait before the next start; False if there should be none."""
        await self._stop_process()
        last = self.log.tail(1)
        if self._fail_trial(f"{failure}: {last[0]}" if last else failure):
            return False
        self._failures += 1
        detail = "\n".join(self.log.tail(TAIL_LINES))
        self.log.add(f"[keeper] {self.name}: {failure}")
        if self._agent is not None:
            self._agent.scrape_now()
        is_hopeless = self._failures >= MAX_FAILURES
        problem = f"{failure}; {self._failures} failures in a row" if is_hopeless else failure
        self._set(
            ModelState.FAILED if is_hopeless else ModelState.RESTARTING,
            exits=self.status.exits + 1,
            problem=problem,
            detail=detail,
        )
        if is_hopeless:
            log.error(
                "%s: %s; it is left alone until `coxswain load %s` or a restart:\n%s",
                *(self.name, problem, self.name, detail),
            )
            return False
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self._failures - 1))
        log.warning("%s: %s; starting it again in %g s:\n%s", self.name, failure, pause_s, detail)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._leaving.wait()
        return not self._leaving.is_set()

    def _set(self, state: ModelState, **changes: Any) -> None:
        if state is ModelState.LOADED or state is ModelState.UNLOADED:
            changes = {"problem": "", "detail": "", **changes}
        since = self.status.since if state is self.status.state else self._clock()
        self.status = replace(self.status, state=state, since=since, **changes)
        self._changed()

    # Its agent

    def _begin_agent(self, key: str) -> None:
        """Report it to the picker; after a restart the agent reports already."""
        if self._agent is not None:
            self._agent.scrape_now()
            return
        target = EndpointTarget(address=self.address, api_key=key or None)
        self._agent = self._make_agent(target, self._endpoint_name, self._edited)
        self._agent_task = asyncio.create_task(self._agent.run(), name=f"report {self.name}")

    async def _drain(self, process: ServerProcess) -> None:
        """Deregister it, and wait until no request runs there."""
        self._set(ModelState.UNLOADING)
        assert self._agent is not None and self._agent_task is not None
        self._agent.leave()
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({self._agent_task, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                limit_s = FOREIGN_S if self._agent.was_granted else UNCONFIRMED_S
                await self._until_idle(limit_s)
                if self._slot_cache is not None:
                    await self._save_slots(self._slot_cache)
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    async def _restore_slots(self, cache: SlotCache) -> None:
        async with self._client() as client:
            await cache.restore(self._as_server(client))

    async def _save_slots(self, cache: SlotCache) -> None:
        async with self._client() as client:
            await cache.save(self._as_server(client))

    def _as_server(self, client: httpx.AsyncClient) -> Server:
        # Where it listens says nothing about its model.
        command = server_command(self.entry, Address.of("127.0.0.1", 1))
        return Server(client=client, command=command, environment=self.entry.env)

    async def _until_idle(self, limit_s: float) -> None:
        """Wait until its own word is that no slot is busy, at most `limit_s`."""
        with suppress(TimeoutError, httpx.HTTPError, ValueError):
            async with asyncio.timeout(limit_s), self._client() as client:
                while True:
                    answer = await client.get("/slots")
                    if answer.status_code != httpx.codes.OK:
                        return  # it does not report its slots
                    slots = answer.json()
                    if not any(isinstance(s, dict) and s.get("is_processing") for s in slots):
                        return
                    await asyncio.sleep(READY_POLL_S)

    async def _end_agent(self) -> None:
        """The agent's end: it has left, or its server is gone for good."""
        agent, task = self._agent, self._agent_task
        self._agent = self._agent_task = None
        if agent is None or task is None:
            return
        agent.leave()
        if self._process is None or not self._process.is_running:
            # Its requests have failed already; the picker learns it from Envoy.
            await asyncio.wait({task}, timeout=REQUEST_TIMEOUT_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _edited(self, observation: Observation) -> Observation:
        """The same under the names of the keeper's file, with what the keeper knows."""
        self._watch_health(observation)
        if observation.models and not is_router(observation.models):
            model = replace(
                observation.models[0], name=self.name, aliases=tuple(self.entry.aliases)
            )
            observation = replace(observation, models=(model,))
        if self.status.problem:
            lines = self.status.detail.splitlines()
            issue = Issue(
                code="server-ended",
                message=f"{self.status.problem}: {lines[-1] if lines else 'it printed nothing'}",
                remedy=f"read its log with `coxswain logs {self._endpoint_name}`",
            )
            observation = replace(observation, issues=(issue, *observation.issues))
        return observation

    def _watch_health(self, observation: Observation) -> None:
        if self.status.state is not ModelState.LOADED or observation.status not in (
            ScrapeStatus.FAILED,
            ScrapeStatus.UNREACHABLE,
        ):
            self._failing_since = None
            return
        if self._failing_since is None:
            self._failing_since = observation.answered_at
        elif observation.answered_at - self._failing_since >= UNRESPONSIVE_S:
            self._hung.set()


def endpoint_name(machine: str, model: str) -> str:
    """The name of a model's endpoint: what an endpoint's name may not contain becomes `-`."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{machine}.{model}").strip("._-")
    return text[:253].rstrip("._-")


def agent_options(options: AgentOptions, name: str) -> AgentOptions:
    """The options of one model's agent. The keeper bounds its drain, the agent does not."""
    return replace(options, name=name, drain_timeout_s=LATE_S)


def _is_free(address: Address) -> bool:
    """Whether a server could listen there."""
    family = socket.AF_INET6 if address.is_ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
            probe.listen()
        except OSError:
            return False
    return True
