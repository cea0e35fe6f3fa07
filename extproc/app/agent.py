"""`coxswain agent`: runs an agent until it gets a signal."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import grpc

from extproc.app.monitoring.loop_lag import LoopLag
from extproc.app.security.secret_reloader import SecretReloader
from extproc.app.security.sent_secret import header_of, read_sent
from extproc.app.service_manager import ServiceManager
from extproc.app.version import own_version
from extproc.core.address import Address, AddressError, is_ip
from extproc.runners.target import EndpointTarget, TargetError
from extproc.security.secret_file import SecretFileError
from extproc.security.trust import are_certificates, certificates_in
from scraper.agent import Agent, AgentOptions
from scraper.agent.advertise import Advertise
from scraper.agent.agent import Sink, Source
from scraper.agent.fleet_watch import FleetWatch
from scraper.agent.picker_stream import LinkError

PORTS: Final = {"http": 80, "https": 443}

log = logging.getLogger("coxswain.agent")


class AgentError(ValueError):
    """The agent cannot run like this; `str(error)` says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """The admin port of the picker whose whole fleet is reported, in place of a server. `connect`
    opens a channel to it. A token in a file is read at each connection. `ahead` requests of the
    parent may wait in the fleet's queue."""

    address: str
    connect: Callable[[], grpc.aio.Channel]
    ahead: int = 0
    token: str = field(default="", repr=False)
    token_file: Path | None = None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with each call. Blocks on the disk; raises `LinkError`."""
        token = self.token
        if self.token_file is not None:
            try:
                token = read_sent("--fleet-token-file", self.token_file)
            except SecretFileError as error:
                raise LinkError(str(error)) from None
        return header_of(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """The options of the command line. `llama` is the server's URL, as the agent reaches it.
    With `fleet`, the advertised address is that of the fleet's Envoy, and there is no server.

    `is_private` says that nobody else reads the messages to the picker. What lies in files is read
    again when they change.
    """

    picker: str
    llama: str
    advertise: str
    name: str = ""
    slots: int | None = None
    may_sleep: bool | None = None
    api_key: str | None = field(default=None, repr=False)
    api_key_file: Path | None = None
    inject_key: bool = False
    is_private: bool = False
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    drain_timeout_s: float = 30.0
    ca_file: Path | None = None
    server_name: str = ""
    fleet: FleetPlan | None = None

    @property
    def files(self) -> set[Path]:
        """All files of the plan."""
        named = (self.api_key_file, self.token_file, self.ca_file)
        return {file for file in named if file is not None}


def plan_agent(plan: AgentPlan) -> tuple[EndpointTarget, AgentOptions]:
    """How to look and what to report; looks a host name up. Raises `AgentError`."""
    find = _server if plan.fleet is None else _fleet
    target, advertise, server_name = find(plan)
    _check_injection(plan)
    options = AgentOptions(
        picker=plan.picker,
        advertise=advertise,
        name=plan.name,
        version=own_version(),
        drain_timeout_s=plan.drain_timeout_s,
        server_name=server_name,
    )
    return read_files(plan, target, options)


def _server(plan: AgentPlan) -> tuple[EndpointTarget, Advertise, str]:
    """The target, and how others reach it: at which address, and with which name in its
    certificate."""
    url = urlsplit(plan.llama if "://" in plan.llama else f"http://{plan.llama}")
    try:
        port = url.port or PORTS.get(url.scheme, 0)
    except ValueError:
        port = 0
    if url.scheme not in PORTS or not url.hostname or not port or url.username or url.query:
        raise AgentError("--llama: write http://HOST:PORT, for example http://127.0.0.1:8080")
    try:
        ip = str(socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)[0][4][0])
        target = EndpointTarget(
            address=Address.of(ip, port),
            is_tls=url.scheme == "https",
            path_prefix=url.path.rstrip("/"),
            ca_file=str(plan.ca_file) if plan.ca_file is not None else None,
            host_name=_configured_name(plan, url) or (None if ip == url.hostname else url.hostname),
            slots=plan.slots,
            may_sleep=plan.may_sleep,
        )
        advertise = Advertise.parse(plan.advertise, port, target.is_tls)
    except OSError as error:
        raise AgentError(f"--llama: {url.hostname}: {error.strerror}") from None
    except TargetError as error:
        raise AgentError(f"--llama: {error}") from None
    except AddressError as error:
        raise AgentError(f"--advertise: {error}; or write auto or aws") from None
    if not (target.is_tls or advertise.is_tls) and (plan.ca_file or plan.server_name):
        raise AgentError(
            "--server-ca and --certificate-name require a server with TLS: write https://"
        )
    own_name = _name_of(url.hostname if target.is_tls else None)
    return target, advertise, plan.server_name or own_name


def _fleet(plan: AgentPlan) -> tuple[EndpointTarget, Advertise, str]:
    """The same. This target is a name only: nobody asks it."""
    is_tls = plan.advertise.startswith("https://")
    if not plan.advertise.rpartition(":")[2].isdigit():
        raise AgentError(
            "--advertise: with --fleet write the address of the fleet's Envoy with its port, "
            "for example 10.0.0.5:10000 or auto:10000"
        )
    try:
        advertise = Advertise.parse(plan.advertise, 0, is_tls)
    except AddressError as error:
        raise AgentError(f"--advertise: {error}; or write auto:PORT") from None
    if not advertise.is_tls and (plan.ca_file or plan.server_name):
        raise AgentError("--server-ca and --certificate-name require https:// in --advertise")
    target = EndpointTarget(address=Address.of("127.0.0.1", advertise.port))
    return target, advertise, plan.server_name


def read_files(
    plan: AgentPlan, target: EndpointTarget, options: AgentOptions
) -> tuple[EndpointTarget, AgentOptions]:
    """The same with what the plan's files hold now. Blocks on the disk; raises `AgentError`."""
    ca_pem = _ca_pem(plan.ca_file)
    api_key, token = plan.api_key, plan.token
    try:
        if plan.api_key_file is not None:
            api_key = read_sent("--api-key-file", plan.api_key_file)
        if plan.token_file is not None:
            token = read_sent("--token-file", plan.token_file)
    except SecretFileError as error:
        raise AgentError(str(error)) from None
    try:
        target = replace(
            target,
            api_key=api_key,
            ca_digest=sha256(ca_pem.encode()).hexdigest() if ca_pem else "",
        )
    except TargetError as error:
        option = "--api-key-env" if plan.api_key_file is None else "--api-key-file"
        raise AgentError(f"{option}: {error}") from None
    return target, replace(
        options,
        metadata=header_of(token),
        ca_pem=ca_pem,
        api_key=(api_key or "") if plan.inject_key else "",
    )


def _check_injection(plan: AgentPlan) -> None:
    if not plan.inject_key:
        return
    if plan.api_key is None and plan.api_key_file is None:
        raise AgentError("--inject-key: also give the key with --api-key-env or --api-key-file")
    if not plan.is_private:
        raise AgentError(
            f"--inject-key: the key would be sent to {plan.picker} unencrypted; use --ca or --tls"
        )


def _configured_name(plan: AgentPlan, url: SplitResult) -> str:
    """The name in the certificate, where the agent itself gets to see one."""
    return plan.server_name if url.scheme == "https" else ""


def _name_of(host: str | None) -> str:
    """The name by which others know the server, empty for its advertised IP address."""
    return "" if host is None or is_ip(host) or host == "localhost" else host


def _ca_pem(file: Path | None) -> str:
    """The content of a CA file; raises `AgentError`."""
    if file is None:
        return ""
    try:
        content = certificates_in(file.read_bytes())
    except OSError as error:
        raise AgentError(f"--server-ca: {file}: {error.strerror}") from None
    if not are_certificates(content):
        raise AgentError(f"--server-ca: {file}: it contains no certificates")
    return content


async def run_agent(plan: AgentPlan, connect: Callable[[], grpc.aio.Channel]) -> None:
    """Report until SIGTERM or SIGINT, then deregister; a second signal ends it at once.

    Raises `AgentError` where it cannot begin.
    """
    target, options = plan_agent(plan)
    lag = LoopLag(time.monotonic, options.scraper.slow_after_s / 2, "the agent")
    agent = Agent(target, options, connect, lost_s=lag.lost_s, source=_source(plan.fleet))
    lag.start()
    work = asyncio.create_task(agent.run())
    manager = ServiceManager(os.environ)
    watch = SecretReloader(lambda: plan.files, lambda: renew(plan, agent))
    watch.start()
    reported = plan.llama if plan.fleet is None else f"the fleet of {plan.fleet.address}"
    manager.ready(f"reporting {reported} to {plan.picker}")
    try:
        with manager.stopping_on_signals(agent.leave, work):
            await work
    finally:
        lag.stop()
        manager.close()
        await watch.aclose()


def _source(fleet: FleetPlan | None) -> Callable[[Sink], Source] | None:
    if fleet is None:
        return None
    return lambda sink: FleetWatch(
        fleet.address, fleet.connect, sink, fleet.metadata, ahead=fleet.ahead
    )


async def renew(plan: AgentPlan, agent: Agent) -> None:
    """Continue with the current content of the files; an invalid file is logged."""
    try:
        target, options = await asyncio.to_thread(read_files, plan, agent.target, agent.options)
    except AgentError as error:
        log.error("keeping the previous keys and certificates: %s", error)
        return
    agent.renew(target, options)
