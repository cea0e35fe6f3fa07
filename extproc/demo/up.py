"""`coxswain up`: a fleet, the picker and Envoy as children of one process, until it is stopped.

Order: the servers and the picker side by side, then Envoy, so that it finds the picker at its
first try; they are stopped the other way round. When the picker or Envoy ends by itself, all are
stopped. When a server does, the others serve on.
"""

import asyncio
import contextlib
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from extproc.core.address import is_loopback
from extproc.demo.envoy_binary import EnvoyMissingError, obtain_envoy
from extproc.demo.fleet import (
    EmbeddedFleet,
    EmbeddedServer,
    FleetOptions,
    choose_fleet,
    cluster_probe,
    health_probe,
    server_environment,
)
from extproc.demo.kept_models import MACHINE, KeptModels, write_kept_models
from extproc.demo.listen_addresses import url_of
from extproc.demo.llama_server import LlamaServerError
from extproc.demo.own_module import own_module
from extproc.demo.own_servers import OwnServers, own_sentence, own_servers
from extproc.demo.process import Child, ChildError, Children, until
from extproc.demo.report import Report
from extproc.demo.workspace import workspace
from extproc.envoy_config.options import OptionsError, envoy_options
from extproc.runners.issues import unauthorized
from extproc.security.secret_file import authorization_of
from extproc.settings import EndpointSettings, Settings, read_api_key
from extproc.settings.client_keys import read_client_keys

ENVOY_CONFIG = "envoy.yaml"
PICKER = "picker"
ENVOY = "Envoy"
ESSENTIAL = frozenset({PICKER, ENVOY})
"""Without these nobody is served."""
READY_TIMEOUT_S = 60.0
OWN_ENDPOINT_PATIENCE_S = 3.0
REJECTIONS = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)
TRIM_EVERY_S = 60.0
MAX_LOG_BYTES = 64 * 1024 * 1024
HURRY = 2
"""The signal that makes the stopping quick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What to run. Ports in the settings are settled: free, and none of them 0.

    `serve_arguments` make `coxswain serve` read the same settings. `kept_slots` are the slots of
    each model of a keeper. Without those and without `fleet_options` the servers are those that the
    settings name.
    """

    settings: Settings
    serve_arguments: Sequence[str]
    fleet_options: FleetOptions | None
    kept_slots: Sequence[int] = ()


async def up(options: UpOptions, report: Report | None = None) -> int:
    """Run everything until SIGINT, SIGTERM or SIGHUP, or until the picker or Envoy ends; the exit
    status.

    0 after a signal, 1 when a part is missing or one of the two ended. Whichever way it ends,
    no process and no file of it is left. A second signal makes it quick.
    """
    report = report or Report()
    running = asyncio.ensure_future(_run(options, report))
    received = 0

    def stop() -> None:
        nonlocal received
        received += 1
        if received <= HURRY:  # a further one would only stop the stopping
            running.cancel()
        if received == 1:
            with contextlib.suppress(OSError):  # as the terminal that was closed with SIGHUP
                report.line("\nStopping.")

    loop = asyncio.get_running_loop()

    def receive(*_: object) -> None:
        loop.call_soon_threadsafe(stop)

    # One that was ignored on purpose (nohup does so) stays ignored.
    before = {
        number: signal.signal(number, receive)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        return await running
    except asyncio.CancelledError:
        if not received:
            raise
        return 0
    except ChildError as error:
        report.failed(error)
    except (EnvoyMissingError, LlamaServerError, OptionsError, OSError) as error:
        report.rejected(error)
    finally:
        # Nothing is left to stop. The event loop would not give back what was there before, but
        # Python's own handler, which raises `KeyboardInterrupt` wherever Python is by then.
        for number, handler in before.items():
            signal.signal(number, handler)
    return 1


async def _run(options: UpOptions, report: Report) -> int:
    envoy = await obtain_envoy(report.line)
    with workspace() as folder:
        fleet = (
            None if options.fleet_options is None else choose_fleet(options.fleet_options, folder)
        )
        kept = write_kept_models(options.kept_slots, folder) if options.kept_slots else None
        async with Children(folder) as children, httpx.AsyncClient() as client:
            run = _Run(options, report, folder, children, client, kept)
            own = None
            if kept is not None:
                report.line(kept.sentence)
            elif fleet is None:
                own = await own_servers(options.settings.endpoints)
                report.line(own_sentence(own.count, options.settings.discovery))
            else:
                report.line(fleet.sentence)
            await run.start(envoy, fleet)
            if own is not None:
                await run.report_servers(own)
            run.invite()
            lost = await run.watch()
            raise lost.exit_error()


@dataclass(frozen=True, slots=True)
class _Run:
    """One run's parts; each method is one of its phases."""

    options: UpOptions
    report: Report
    folder: Path
    children: Children
    client: httpx.AsyncClient
    kept: KeptModels | None = None

    async def start(self, envoy: Path, fleet: EmbeddedFleet | None) -> None:
        """Return when all is ready; raises the `ChildError` of the first that fails."""
        try:
            async with asyncio.TaskGroup() as group:
                if fleet is not None:
                    for server in fleet.servers:
                        group.create_task(self._start_server(fleet, server))
                group.create_task(self._start_picker(fleet))
                group.create_task(asyncio.to_thread(self._write_envoy_config))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        started = await self._start_envoy(envoy)
        if self.kept is not None:
            await self._start_keeper(self.kept)
        if fleet is not None or self.kept is not None:
            await self._try_out(started)

    async def report_servers(self, own: OwnServers) -> None:
        """Report which of the user's own servers answer, and which are listed twice."""
        named = {endpoint.address: endpoint for endpoint in self.options.settings.endpoints}
        await asyncio.gather(*(self._check_server(named[address]) for address in own.different))
        for address, other in own.again:
            self.report.waiting(address, f"is the same as {other}")

    def invite(self) -> None:
        """Say how to use it and how to end it."""
        url = url_of(self.options.settings.envoy.listen)
        keys_file = self.options.settings.clients.keys_file
        self.report.line()
        if keys_file is None:
            self.report.line("Send a request:")
        else:
            self.report.line(f"Send a request, with KEY set to a key in {keys_file}:")
        key = "" if keys_file is None else ' -H "authorization: Bearer $KEY"'
        curl = f"curl {url}/v1/chat/completions -H 'content-type: application/json'{key} -d "
        words = '"messages":[{"role":"user","content":"Who steers?"}],"max_tokens":32'
        if self.kept is None:
            self.report.line(f"  {curl}'{{{words}}}'")
        else:
            self._invite_to_swap(self.kept, curl, words)
        self.report.line("Watch slots and queue, in another terminal:")
        self.report.line(f"  coxswain top {self._connection()}")
        if is_loopback(self.options.settings.envoy.listen):
            self.report.line("Only this machine reaches it; --host 0.0.0.0 opens it to others.")
        self.report.line(f"Envoy's admin pages: {url_of(self.options.settings.envoy.admin)}")
        self.report.line(f"The picker's pages:  {url_of(self.options.settings.listen.http)}")
        self.report.line("Ctrl-C stops everything.")

    def _invite_to_swap(self, kept: KeptModels, curl: str, words: str) -> None:
        """Each model is asked for in turn; a request for one that is not loaded loads it."""
        for name in kept.names:
            self.report.line(f'  {curl}\'{{"model":"{name}",{words}}}\'')
        self.report.line("Watch the models come and go:")
        self.report.line(f"  coxswain models {self._connection()}")
        self.report.line(f"  coxswain logs {self._connection()} -f {MACHINE}/{kept.names[0]}")

    def _connection(self) -> str:
        """The options by which a command reaches this picker."""
        settings = self.options.settings
        token_file = settings.admin.token_file
        token = "" if token_file is None else f" --token-file {shlex.quote(token_file)}"
        return f"--picker {settings.listen.admin}{token}"

    async def watch(self) -> Child:
        """Wait for the end of the picker or Envoy, and report what else ends; meanwhile keep the
        logs small."""
        while True:
            ended = asyncio.ensure_future(self.children.first_exit())
            try:
                while not ended.done():
                    await asyncio.wait([ended], timeout=TRIM_EVERY_S)
                    self.children.trim_logs(MAX_LOG_BYTES)
            finally:
                ended.cancel()
            lost = ended.result()
            if lost.name in ESSENTIAL:
                return lost
            self.report.lost(lost.exit_error())

    async def _start_server(self, fleet: EmbeddedFleet, server: EmbeddedServer) -> None:
        name = f"{fleet.name} {server.address}"
        child = await self.children.start(
            name, fleet.command(server), environment=server_environment()
        )
        await self._wait_ready(child, f"http://{server.address}/health")
        self.report.ready(name, f"{server.slots} slots")

    async def _start_picker(self, fleet: EmbeddedFleet | None) -> None:
        listen = self.options.settings.listen
        arguments = list(self.options.serve_arguments)
        for server in fleet.servers if fleet is not None else ():
            arguments += ["--endpoint", str(server.address)]
        child = await self.children.start(PICKER, [*own_module("extproc.cli"), "serve", *arguments])
        await self._wait_ready(child, f"{url_of(listen.http)}/healthz")
        self.report.ready(PICKER, f"gRPC {listen.grpc}")

    async def _start_keeper(self, kept: KeptModels) -> None:
        """After Envoy: a model is loaded when it is asked for."""
        admin = self.options.settings.listen.admin
        await self.children.start(
            "keeper", kept.keeper_command(admin), environment=server_environment()
        )
        self.report.ready("keeper", f"{len(kept.names)} models")

    def _write_envoy_config(self) -> None:
        """Takes two seconds of computing, most of it imports; runs beside the other starts."""
        from extproc.envoy_config.documents import bootstrap  # noqa: PLC0415  # loads slowly, so it runs in a thread

        text = bootstrap(envoy_options(self.options.settings))
        (self.folder / ENVOY_CONFIG).write_text(text, encoding="utf-8")

    async def _start_envoy(self, binary: Path) -> Child:
        settings = self.options.settings
        config = self.folder / ENVOY_CONFIG
        child = await self.children.start(
            ENVOY,
            # Hot restart's shared memory would tie it to other Envoys of this machine.
            [*(binary, "-c", config), *("--log-level", "warning"), "--disable-hot-restart"],
        )
        await self._wait_ready(child, f"{url_of(settings.envoy.admin)}/ready")
        self.report.ready(ENVOY, url_of(settings.envoy.listen))
        return child

    async def _try_out(self, envoy: Child) -> None:
        """Ask one of the servers through Envoy, without taking a slot, as a client that may."""
        settings = self.options.settings
        url = f"{url_of(settings.envoy.listen)}/v1/models"
        headers = _clients_headers(settings)
        has_cluster = cluster_probe(self.client, url_of(settings.envoy.admin))
        await envoy.wait_ready(has_cluster, timeout_s=READY_TIMEOUT_S)
        if headers is None:
            await self._wait_ready(envoy, url, status=httpx.codes.UNAUTHORIZED)
            self.report.ready("Envoy asks clients for a key", "")
        else:
            await self._wait_ready(envoy, url, headers)
            self.report.ready("a response through all of them", "")

    async def _wait_ready(
        self,
        child: Child,
        url: str,
        headers: Mapping[str, str] | None = None,
        status: int = httpx.codes.OK,
    ) -> None:
        probe = health_probe(self.client, url, headers, status)
        await child.wait_ready(probe, timeout_s=READY_TIMEOUT_S)

    async def _check_server(self, endpoint: EndpointSettings) -> None:
        """Report whether one of the user's own servers answers, and takes the key that it is to be
        shown; if not, that is no reason to end."""
        address = endpoint.address
        shown = f"{endpoint.name} ({address})" if endpoint.name else address
        url = address if "://" in address else f"http://{address}"
        key = read_api_key(endpoint)
        headers = {} if key is None else {"authorization": authorization_of(key)}
        with contextlib.suppress(TimeoutError, httpx.TransportError):
            async with asyncio.timeout(OWN_ENDPOINT_PATIENCE_S):
                await until(health_probe(self.client, f"{url}/health"), every_s=0.2)
                answer = await self.client.get(f"{url}/props", headers=headers)  # /health is open
                if answer.status_code in REJECTIONS:
                    self.report.waiting(shown, unauthorized(key is not None).message)
                else:
                    self.report.ready(shown, "")
                return
        if endpoint.wake is None:
            text = "does not answer /health yet; Coxswain keeps scraping it"
        else:
            text = "does not answer /health: its machine sleeps until requests wake it"
        self.report.waiting(shown, text)


def _clients_headers(settings: Settings) -> dict[str, str] | None:
    """What a client shows that may ask; None where the file holds no key, only digests."""
    if settings.clients.keys_file is None:
        return {}
    entries = read_client_keys(Path(settings.clients.keys_file).expanduser())
    key = next((entry.key for entry in entries if entry.key is not None), None)
    return None if key is None else {"authorization": authorization_of(key)}
