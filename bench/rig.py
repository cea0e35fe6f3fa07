"""The processes of a benchmark: stand-in servers, a picker and an Envoy before it."""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from bench import stand_in
from bench.envoy_tree import Tree, split_picker
from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import LOOPBACK, free_ports, listening_problem
from extproc.demo.process import Child, Children
from extproc.envoy_config import names
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions, HostPort
from extproc.settings.envoy_section import EnvoySettings

READY_S = 30.0
GO_PICKER = Path(__file__).parent / "go_noop"
QUIET: Final[dict[str, Any]] = {"log": {"level": "warning"}}
"""Settings of a picker that writes no line for each request."""
WITHOUT_BODIES: Final[dict[str, Any]] = {**QUIET, "routing": {"read_body": "never"}}


class Started(NamedTuple):
    """A process, and the port at which it serves."""

    child: Child
    port: int


class Rig(Children):
    """Processes with a folder of their own; leaving the block stops them and deletes it."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="coxswain-")
        self.folder = Path(self._temporary.name)
        self.dependencies = AsyncExitStack()
        """Closed when all processes are stopped."""
        super().__init__(self.folder)

    async def __aexit__(self, *error: object) -> None:
        try:
            await super().__aexit__(*error)
            await self.dependencies.aclose()
        finally:
            self._temporary.cleanup()

    async def start_stand_ins(
        self,
        ports: int | list[int],
        slots: int,
        service_s: float = 0.0,
        times_ms: Sequence[int] = (),
    ) -> list[int]:
        """Start endpoints on these ports, or on that many free ones; returns their ports."""
        if isinstance(ports, int):
            ports = free_ports(ports)
        configuration = stand_in.configuration(ports, slots, service_s, times_ms)
        await self.run_envoy(f"stand-in-{ports[0]}", configuration, ports[-1])
        return ports

    async def start_haproxy(
        self,
        binary: str,
        slots_by_port: Mapping[int, int],
        options: Sequence[str] = ("balance leastconn", "http-reuse never"),
        server_options: str = "",
    ) -> Started:
        """Start HAProxy with the number of slots of each server as its limit, by default with one
        connection for each request, as Envoy has; its port is that for clients."""
        [port] = free_ports(1)
        servers = [
            f"  server s{number} {LOOPBACK}:{server} maxconn {slots} weight {slots} "
            f"{server_options}"
            for number, (server, slots) in enumerate(slots_by_port.items())
        ]
        config = self.folder / f"haproxy-{port}.cfg"
        lines = [
            "global",
            "  nbthread 1",
            "defaults",
            "  mode http",
            *(f"  timeout {name} 300s" for name in ("connect", "client", "server", "queue")),
            "listen all",
            f"  bind {LOOPBACK}:{port}",
            *(f"  {option}" for option in options),
            *servers,
        ]
        config.write_text("\n".join(lines) + "\n")
        command = (binary, "-db", "-f", config)
        return await self.start_listening(f"haproxy-{port}", command, port)

    async def start_picker(
        self,
        endpoints: list[int],
        settings: Mapping[str, Any] = QUIET,
        admin: int | None = None,
        http: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Started:
        """Start Coxswain as people run it; its port is that of gRPC."""
        config, port = self.configure_picker(endpoints, settings, admin, http)
        command = (sys.executable, "-m", "extproc.cli", "serve", "--config")
        return await self.start_listening(f"picker-{port}", [*command, config], port, environment)

    def configure_picker(
        self,
        endpoints: list[int],
        settings: Mapping[str, Any],
        admin: int | None = None,
        http: int | None = None,
    ) -> tuple[Path, int]:
        """Write the settings of a picker; returns the file and the port of gRPC."""
        port, any_admin, any_http = free_ports(3)
        listen = {"grpc": port, "admin": admin or any_admin, "http": http or any_http}
        tree = {
            "listen": {name: f"{LOOPBACK}:{one}" for name, one in listen.items()},
            "endpoints": [f"{LOOPBACK}:{one}" for one in endpoints],
            **settings,
        }
        config = self.folder / f"coxswain-{port}.yaml"
        config.write_text(yaml.safe_dump(tree))
        return config, port

    async def start_noop_picker(
        self, endpoint: int, *, holds: bool = False
    ) -> tuple[Child, int, int]:
        """Start the floor; returns it and its ports for ext_proc and for discovery. One that
        holds never answers."""
        port, discovery = free_ports(2)
        ports = [str(port), str(discovery)]
        command = [sys.executable, "-m", "bench.noop_picker", *ports, f"{LOOPBACK}:{endpoint}"]
        if holds:
            command.append("--hold")
        child, _ = await self.start_listening(f"noop-{port}", command, port)
        return child, port, discovery

    async def start_go_picker(self, endpoint: int) -> Started:
        """Build and start the floor in Go, which serves ext_proc alone."""
        [port] = free_ports(1)
        binary = self.folder / "go-noop"
        build = await asyncio.create_subprocess_exec(
            "go", "build", "-o", binary, ".", cwd=GO_PICKER
        )
        if await build.wait():
            raise RuntimeError("building bench/go_noop failed")
        places = (f"{LOOPBACK}:{port}", f"{LOOPBACK}:{endpoint}")
        return await self.start_listening(f"go-noop-{port}", [binary, *places], port)

    async def start_envoy(
        self,
        picker_port: int,
        *,
        message_timeout_s: float = 1.0,
        processor_port: int | None = None,
        access_log: bool = False,
        has_fronts: bool = False,
        edit: Callable[[Tree], object] | None = None,
    ) -> Started:
        """Start an Envoy with our own configuration, which `edit` may change. With
        `processor_port`, ext_proc is served there and discovery by the picker."""
        port, admin = free_ports(2)
        options = EnvoyOptions(
            envoy=EnvoySettings(
                listen=f"{LOOPBACK}:{port}",
                admin=f"{LOOPBACK}:{admin}",
                access_log=access_log,
                message_timeout_s=message_timeout_s,
            ),
            picker=HostPort(LOOPBACK, picker_port),
            has_fronts=has_fronts,
        )
        tree = yaml.safe_load(bootstrap(options))
        if processor_port is not None:
            split_picker(tree, names.PICKER_CLUSTER, processor_port)
        if edit is not None:
            edit(tree)
        return await self.run_envoy(f"envoy-{port}", yaml.safe_dump(tree), port)

    async def run_envoy(self, name: str, configuration: str, port: int) -> Started:
        """Start an Envoy with one worker and this configuration, which listens at that port."""
        config = self.folder / f"{name}.yaml"
        config.write_text(configuration)
        quiet = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
        return await self.start_listening(name, [find_envoy(), "-c", config, *quiet], port)

    async def start_listening(
        self,
        name: str,
        command: Sequence[str | Path],
        port: int,
        environment: Mapping[str, str] | None = None,
    ) -> Started:
        """Start a command, and wait until it listens at that port."""
        child = await self.start(name, command, environment=environment)
        await until_listening(child, port)
        return Started(child, port)


async def until_listening(child: Child, port: int) -> None:
    """Wait until something listens there. Raises `ChildError` when nothing does in time."""

    async def listens() -> bool:
        return await asyncio.to_thread(listening_problem, port) is not None

    await child.wait_ready(listens, timeout_s=READY_S)
