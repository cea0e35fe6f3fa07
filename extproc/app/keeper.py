"""`coxswain keeper`: keeps the models of one machine until it gets a signal."""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from weakref import WeakSet

import grpc

from extproc.app.monitoring.loop_lag import LoopLag
from extproc.app.security.sent_secret import SentSecret, following
from extproc.app.service_manager import ServiceManager
from extproc.app.version import own_version
from extproc.core.address import Address, AddressError
from extproc.core.observation import Observation
from extproc.keeper.link import KeeperLink, LinkOptions
from extproc.keeper.machine import Machine
from extproc.keeper.machine_check import misfits
from extproc.keeper.model_server import AGENT_DRAIN_S, ModelServer, endpoint_name
from extproc.keeper.models_file import ModelEntry, ModelsFile, read_models
from extproc.keeper.replacements import Replacements
from extproc.keeper.replacer import Replacer
from extproc.keeper.slot_store import SlotStore, StoreError
from extproc.runners.target import EndpointTarget
from extproc.security.reading import BlockedReadError, Reads
from extproc.settings import SettingsError
from scraper.agent import Agent, AgentOptions
from scraper.agent.advertise import Advertise, AdvertiseError
from scraper.options import ScraperOptions

log = logging.getLogger("coxswain.keeper")

FIND_S: Final = 30.0
FIND_PAUSE_S: Final = 1.0


class KeeperError(ValueError):
    """The keeper cannot run like this; `str(error)` says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperPlan:
    """The options of the command line. `advertise` is the address at which Envoy reaches this
    machine: an IP address, or `auto` or `aws`. `token_file` may hold the token."""

    picker: str
    models: Path
    advertise: str = "auto"
    name: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    drain_timeout_s: float = 30.0
    allows_replace: bool = False


async def run_keeper(plan: KeeperPlan, connect: Callable[[], grpc.aio.Channel]) -> None:
    """Keep the models until SIGTERM or SIGINT, then unload them; a second signal ends it at once.

    Raises `SettingsError` for an invalid file, and `KeeperError` where it cannot begin.
    """
    replacements = Replacements(plan.models)
    written, file = _read(plan.models, replacements)
    host = await _host(plan)
    token = SentSecret("--token-file", plan.token_file, plan.token)
    agents: WeakSet[Agent] = WeakSet()
    scraping = ScraperOptions()
    lag = LoopLag(time.monotonic, scraping.slow_after_s / 2, "the keeper")
    machine = Machine(plan.name or _machine_name(), file.memory_mb, lambda: link.changed())  # noqa: PLW0108  # `link` comes later
    replacer = Replacer(machine, replacements if plan.allows_replace else None)
    link = KeeperLink(
        machine,
        LinkOptions(picker=plan.picker, version=own_version(), metadata=token.authorization),
        connect,
        replacer,
    )

    def make_agent(
        target: EndpointTarget, name: str, edit: Callable[[Observation], Observation]
    ) -> Agent:
        options = AgentOptions(
            picker=plan.picker,
            advertise=Advertise.parse(str(target.address), target.address.port),
            name=name,
            version=own_version(),
            metadata=token.authorization,
            drain_timeout_s=AGENT_DRAIN_S,
            kept_models=len(machine.servers),
            scraper=scraping,
        )
        agent = Agent(target, options, connect, lost_s=lag.lost_s, edit=edit)
        agents.add(agent)
        return agent

    def send_new_token() -> None:
        link.options = replace(link.options, metadata=token.authorization)
        for agent in agents:
            agent.renew(agent.target, replace(agent.options, metadata=token.authorization))

    slot_store = _slot_store(machine, file)

    def make_server(name: str, entry: ModelEntry, port: int) -> ModelServer:
        return ModelServer(
            name,
            entry,
            Address.of(host, port),
            endpoint_name=endpoint_name(machine.name, name),
            make_agent=make_agent,
            changed=machine.changed,
            slot_store=slot_store,
        )

    def read() -> ModelsFile:
        written, file = _read(plan.models, replacements)
        replacer.file = written.models
        return file

    replacer.file = written.models
    models = KeptModels(machine, link.models_changed, make_server, read)
    models.take(file)
    tokens = following((token,), send_new_token)
    tokens.start()
    try:
        await _keep(machine, link, lag, plan, models)
    finally:
        await tokens.aclose()


def _read(path: Path, replacements: Replacements) -> tuple[ModelsFile, ModelsFile]:
    """The keeper's file as it is written, and with what operators replaced. Blocks on the disk;
    raises `SettingsError`."""
    written = read_models(path)
    file, notes = replacements.apply(written)
    for note in (*notes, *misfits(file, os.environ)):
        log.warning("%s: %s", path, note)
    return written, file


class KeptModels:
    """The models of the file, as the machine has them."""

    def __init__(
        self,
        machine: Machine,
        changed: Callable[[], None],
        make_server: Callable[[str, ModelEntry, int], ModelServer],
        read: Callable[[], ModelsFile],
    ) -> None:
        self._read = read
        self._reads = Reads()
        self._machine = machine
        self._changed = changed
        self._make_server = make_server
        self._ports: dict[str, int] = {}

    def take(self, file: ModelsFile) -> None:
        """These are the models now. One whose entry is the same runs on; one that is new or differs
        is a new server, loaded when it is wanted."""
        machine = self._machine
        ports = file.ports(self._ports)
        servers = {}
        for name, entry in file.models.items():
            known = machine.servers.get(name)
            if known is None or known.entry != entry or known.address.port != ports[name]:
                known = self._make_server(name, entry, ports[name])
            servers[name] = known
        self._ports |= ports
        machine.update(file.memory_mb, servers)
        self._changed()

    async def reload(self, path: Path) -> None:
        """Read the file again; a mistake in it changes nothing."""
        try:
            file = await self._reads(self._read)
        except (SettingsError, BlockedReadError) as error:
            log.error("the models are unchanged: %s", error)
            return
        before = dict(self._machine.servers)
        self.take(file)
        after = self._machine.servers
        changed = sorted(name for name in before | after if before.get(name) is not after.get(name))
        log.info("%s was read again; changed models: %s", path, ", ".join(changed) or "none")


def _slot_store(machine: Machine, file: ModelsFile) -> SlotStore | None:
    if file.save_slots is None:
        return None
    store = SlotStore(file.save_slots, machine.name, file.save_slots_mb)
    try:
        store.open()
    except StoreError as error:
        raise KeeperError(str(error)) from None
    return store


async def _keep(
    machine: Machine, link: KeeperLink, lag: LoopLag, plan: KeeperPlan, models: KeptModels
) -> None:
    manager = ServiceManager(os.environ)
    stopping = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    reload_due = asyncio.Event()

    async def reload() -> None:
        while True:
            await reload_due.wait()
            reload_due.clear()
            await models.reload(plan.models)

    loop.add_signal_handler(signal.SIGHUP, reload_due.set)
    reloading = asyncio.create_task(reload(), name="read the models again")
    lag.start()
    reporting = asyncio.create_task(link.run(), name="report to the picker")
    count = len(machine.servers)
    log.info("keeping %d models as %s, in %d MiB", count, machine.name, machine.memory_mb)
    machine.want(name for name, server in machine.servers.items() if server.entry.preload)
    manager.ready(f"keeping {count} models for {plan.picker}")
    try:
        with manager.stopping_on_signals(stopping.set, task):
            await stopping.wait()
            log.info("stopping; running requests may end within %g s", plan.drain_timeout_s)
            await machine.stop(plan.drain_timeout_s)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        reloading.cancel()
        await machine.stop(0.0)
        reporting.cancel()
        await asyncio.gather(reporting, reloading, return_exceptions=True)
        lag.stop()
        manager.close()


async def _host(plan: KeeperPlan) -> str:
    """The IP address at which the servers listen; waits a while for the network."""
    text = plan.advertise.strip()
    try:
        if text not in ("auto", "aws"):
            return Address.of(text.strip("[]"), 1).host
        advertise = Advertise.parse(text, 1)
    except AddressError as error:
        raise KeeperError(f"--advertise: {error}; or write auto or aws") from None
    until = time.monotonic() + FIND_S
    while True:
        try:
            return (await advertise.find(plan.picker)).host
        except AdvertiseError as error:
            if time.monotonic() > until:
                raise KeeperError(str(error)) from None
            log.warning("%s; retrying", error)
        await asyncio.sleep(FIND_PAUSE_S)


def _machine_name() -> str:
    """This machine's own name, without its domain."""
    return endpoint_name(socket.gethostname().partition(".")[0], "") or "machine"
