"""One model: from being wanted to being unloaded.

    unloaded -> loading -> loaded -> unloading -> unloaded
                  ^ |         |
                  | v         v
               restarting <---+     after an exit; `failed` after `MAX_FAILURES` of them in a row

While its server is loaded an agent reports it to the picker, through restarts, too. An unload
first deregisters it: the picker sends no new requests and says when the last one has ended.
"""

import asyncio
import logging
import re
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.placement.load_policy import FOREIGN_S, MAX_FAILURES, STABLE_S, retry_pause_s
from extproc.keeper.command import server_command, takes_slots_folder
from extproc.keeper.log_ring import LogRing
from extproc.keeper.model_status import ModelState, ModelStatus, Trial
from extproc.keeper.models_file import ModelEntry
from extproc.keeper.server_client import ServerClient
from extproc.keeper.server_process import STOP_GRACE_S, ServerProcess
from extproc.keeper.server_report import UNRESPONSIVE_S, MakeAgent, ServerReport
from extproc.keeper.slot_cache import SlotCache
from extproc.keeper.slot_store import SlotStore

UNCONFIRMED_S: Final = 600.0
"""How long it waits for busy slots if the picker did not say that its requests have ended."""
TAIL_LINES: Final = 15
AGENT_DRAIN_S: Final = 7 * 24 * 3600.0
"""The keeper bounds the drain of a model, its agent does not."""

log = logging.getLogger("coxswain.keeper")


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
        self._changed = changed
        self._clock = clock
        self._leaving = asyncio.Event()
        self._hung = asyncio.Event()
        self._failures = 0
        self._process: ServerProcess | None = None
        self._report = ServerReport(
            address, endpoint_name, make_agent, lambda: self.status, self._hung.set
        )
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
        if self._slot_store is None or not takes_slots_folder(self.entry):
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
            while (failure := await self._try_to_serve()) is not None:
                if not await self._pause_after(failure):
                    break
        finally:
            self._fail_trial("it was unloaded before it had proved itself")
            is_running = self._process is not None and self._process.is_running
            try:
                await self._report.end(is_running=is_running)
            finally:
                await self._stop_process()
            if self.status.state is not ModelState.FAILED:
                self._set(ModelState.UNLOADED)

    # One run of its server

    async def _try_to_serve(self) -> str | None:
        """A fault of ours counts as a failure, too: the next start waits as long."""
        try:
            return await self._serve()
        except Exception as error:
            log.exception("keeping %s failed", self.name)
            return f"the keeper failed ({type(error).__name__}); report this bug"

    async def _serve(self) -> str | None:
        """Start the server and watch it. Returns why it ended, None after `leave`."""
        began_at = self._clock()
        self._hung.clear()
        self._report.server_started()
        if not _is_free(self.address):
            return f"another process listens on {self.address}"
        self._set(ModelState.LOADING)
        client = ServerClient(self.entry, self.address)
        if self.entry.api_key_env and not client.api_key:
            return f"the environment variable {self.entry.api_key_env} is empty or not set"
        self.log.add(f"[keeper] loading {self.name} on {self.address}")
        cache = self._slot_cache
        folder = "" if cache is None else cache.make_folder()
        command = server_command(self.entry, self.address, folder)
        try:
            process = await ServerProcess.start(
                command, self.entry.env, self.log, is_private=bool(folder)
            )
        except OSError as error:
            return f"it cannot be started: {error}"
        self._process = process
        ended = await self._first_of(
            process.wait(),
            self._leaving.wait(),
            client.until_ready(),
            timeout_s=self.entry.load_timeout_s,
        )
        if ended is None:
            await self._stop_process()
            return f"it was not ready after {self.entry.load_timeout_s:g} s"
        if ended == 0:
            return process.how_it_ended()
        if ended == 1:
            return None
        if (trial := self._trial) is not None:
            # It completes a prompt before the picker hears of it.
            if (problem := await client.prove()) is not None:
                return problem
            self._trial = None
            trial.end(None)
        if cache is not None and folder:
            ended = await self._first_of(
                process.wait(), self._leaving.wait(), client.move_slots(cache.restore)
            )
            if ended == 0:
                return process.how_it_ended()
            if ended == 1:
                return None
        now = self._clock()
        log.info("%s is loaded after %.1f s", self.name, now - began_at)
        self._set(ModelState.LOADED, load_s=now - began_at)
        self._report.begin(client.api_key, self.entry.aliases)
        ended = await self._first_of(process.wait(), self._leaving.wait(), self._hung.wait())
        if self._clock() - now >= STABLE_S:
            self._failures = 0
        if ended == 1:
            await self._drain(process, client)
            return None
        if ended == 2:
            await self._stop_process()
            return f"it gave no usable answer for {UNRESPONSIVE_S:g} s"
        return process.how_it_ended()

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

    async def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop(STOP_GRACE_S)

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
        self._report.scrape_now()
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
        pause_s = retry_pause_s(self._failures)
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

    async def _drain(self, process: ServerProcess, client: ServerClient) -> None:
        """Deregister it, and wait until no request runs there."""
        self._set(ModelState.UNLOADING)
        ended = await self._first_of(process.wait(), self._report.deregister())
        if ended == 0:
            return
        limit_s = FOREIGN_S if self._report.was_granted else UNCONFIRMED_S
        idle = self._let_go(client, limit_s)
        await self._first_of(process.wait(), idle)

    async def _let_go(self, client: ServerClient, limit_s: float) -> None:
        await client.until_idle(limit_s)
        if self._slot_cache is not None:
            await client.move_slots(self._slot_cache.save)


def endpoint_name(machine: str, model: str) -> str:
    """The name of a model's endpoint: what an endpoint's name may not contain becomes `-`."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{machine}.{model}").strip("._-")
    return text[:253].rstrip("._-")


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
