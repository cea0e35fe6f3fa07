"""The processes of a benchmark: stand-in servers, a picker and an Envoy before it."""

import asyncio
import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench import stand_in
from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import LOOPBACK, free_ports, listening_problem
from extproc.demo.process import Child, Children
from extproc.envoy_config import names
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions, HostPort

READY_S = 30.0
GO_PICKER = Path(__file__).parent / "go_noop"


async def start_stand_ins(
    children: Children, folder: Path, count: int, slots: int, service_s: float = 0.0
) -> list[int]:
    """Start `count` endpoints; returns their ports."""
    ports = free_ports(count)
    await start_stand_ins_on(children, folder, ports, slots, service_s)
    return ports


async def start_stand_ins_on(
    children: Children,
    folder: Path,
    ports: list[int],
    slots: int,
    service_s: float = 0.0,
    times_ms: Sequence[int] = (),
) -> None:
    config = folder / f"stand-in-{ports[0]}.yaml"
    config.write_text(stand_in.configuration(ports, slots, service_s, times_ms))
    child = await _start_envoy(children, config, f"stand-in-{ports[0]}")
    await until_listening(child, ports[-1])


async def start_haproxy(
    children: Children, folder: Path, binary: str, slots_by_port: dict[int, int]
) -> int:
    """Start HAProxy with the number of slots of each server as its limit, and one connection for
    each request, as Envoy has; returns the port for clients."""
    port = free_ports(1)[0]
    servers = [
        f"  server s{number} {LOOPBACK}:{server} maxconn {slots}"
        for number, (server, slots) in enumerate(slots_by_port.items())
    ]
    config = folder / f"haproxy-{port}.cfg"
    lines = [
        "global",
        "  nbthread 1",
        "defaults",
        "  mode http",
        *(f"  timeout {name} 300s" for name in ("connect", "client", "server", "queue")),
        "listen all",
        f"  bind {LOOPBACK}:{port}",
        "  balance leastconn",
        "  http-reuse never",
        *servers,
    ]
    config.write_text("\n".join(lines) + "\n")
    child = await children.start(f"haproxy-{port}", [binary, "-db", "-f", config])
    await until_listening(child, port)
    return port


async def start_picker(
    children: Children,
    folder: Path,
    endpoints: list[int],
    settings: dict[str, Any] | None = None,
    admin: int | None = None,
    http: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Child, int]:
    """Start Coxswain as people run it; returns it and its gRPC port."""
    port, any_admin, any_http = free_ports(3)
    admin, http = admin or any_admin, http or any_http
    config = folder / f"coxswain-{port}.yaml"
    listen = {
        "grpc": f"{LOOPBACK}:{port}",
        "admin": f"{LOOPBACK}:{admin}",
        "http": f"{LOOPBACK}:{http}",
    }
    addresses = [f"{LOOPBACK}:{one}" for one in endpoints]
    config.write_text(
        yaml.safe_dump({"listen": listen, "endpoints": addresses, **(settings or {})})
    )
    child = await children.start(
        f"picker-{port}",
        [sys.executable, "-m", "extproc.cli", "serve", "--config", config],
        environment=environment,
    )
    await until_listening(child, port)
    return child, port


async def start_noop_picker(
    children: Children, endpoint: int, *, holds: bool = False
) -> tuple[Child, int, int]:
    """Start the floor; returns it and its ports for ext_proc and for discovery. One that holds
    never answers."""
    port, discovery = free_ports(2)
    ports = [str(port), str(discovery)]
    command = [sys.executable, "-m", "bench.noop_picker", *ports, f"{LOOPBACK}:{endpoint}"]
    if holds:
        command.append("--hold")
    child = await children.start(f"noop-{port}", command)
    await until_listening(child, port)
    return child, port, discovery


async def start_go_picker(children: Children, folder: Path, endpoint: int) -> tuple[Child, int]:
    """Build and start the floor in Go, which serves ext_proc alone; returns it and its port."""
    port = free_ports(1)[0]
    binary = folder / "go-noop"
    build = await asyncio.create_subprocess_exec("go", "build", "-o", binary, ".", cwd=GO_PICKER)
    if await build.wait():
        raise RuntimeError("building bench/go_noop failed")
    place, destination = f"{LOOPBACK}:{port}", f"{LOOPBACK}:{endpoint}"
    child = await children.start(f"go-noop-{port}", [binary, place, destination])
    await until_listening(child, port)
    return child, port


async def start_envoy(
    children: Children,
    folder: Path,
    picker_port: int,
    *,
    asks_picker: bool = True,
    processor_port: int | None = None,
) -> int:
    """Start an Envoy with our own configuration; returns the port for clients. With
    `processor_port`, ext_proc is served there and discovery by the picker."""
    _, port = await start_envoy_process(
        children, folder, picker_port, asks_picker=asks_picker, processor_port=processor_port
    )
    return port


async def start_envoy_process(
    children: Children,
    folder: Path,
    picker_port: int,
    *,
    asks_picker: bool = True,
    message_timeout_s: float = 1.0,
    processor_port: int | None = None,
    access_log: bool = False,
    has_fronts: bool = False,
    edit: Callable[[Any], None] | None = None,
) -> tuple[Child, int]:
    """The same; returns the process, too."""
    port, admin = free_ports(2)
    options = EnvoyOptions(
        listener=HostPort(LOOPBACK, port),
        admin=HostPort(LOOPBACK, admin),
        picker=HostPort(LOOPBACK, picker_port),
        access_log=access_log,
        has_fronts=has_fronts,
        message_timeout_s=message_timeout_s,
    )
    tree = yaml.safe_load(bootstrap(options))
    if not asks_picker:
        remove_picker_filter(tree)
    if processor_port is not None:
        _split_picker(tree, names.PICKER_CLUSTER, processor_port)
    if edit is not None:
        edit(tree)
    config = folder / f"envoy-{port}.yaml"
    config.write_text(yaml.safe_dump(tree))
    child = await _start_envoy(children, config, f"envoy-{port}")
    await until_listening(child, port)
    return child, port


def _split_picker(tree: Any, cluster: str, port: int) -> None:
    """Let ext_proc go to a cluster of its own, without health checks."""
    clusters = tree["static_resources"]["clusters"]
    own = copy.deepcopy(next(one for one in clusters if one["name"] == cluster))
    own["name"] = own["load_assignment"]["cluster_name"] = "processor"
    own.pop("health_checks", None)
    place = own["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
    place["socket_address"]["port_value"] = port
    clusters.append(own)
    for listener in tree["static_resources"]["listeners"]:
        _rename_processor(listener)


def _rename_processor(tree: Any) -> None:
    if isinstance(tree, list):
        for each in tree:
            _rename_processor(each)
    elif isinstance(tree, dict):
        if str(tree.get("@type", "")).endswith("ext_proc.v3.ExternalProcessor"):
            tree["grpc_service"]["envoy_grpc"]["cluster_name"] = "processor"
        for each in tree.values():
            _rename_processor(each)


def remove_picker_filter(tree: Any) -> None:
    """Let Envoy balance by itself."""
    for listener in tree["static_resources"]["listeners"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        manager["http_filters"] = [
            one
            for one in manager["http_filters"]
            if not one["typed_config"]["@type"].endswith("ext_proc.v3.ExternalProcessor")
        ]
        for host in manager["route_config"]["virtual_hosts"]:
            for route in host["routes"]:
                route.pop("typed_per_filter_config", None)


async def _start_envoy(children: Children, config: Path, name: str) -> Child:
    quiet = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
    return await children.start(name, [find_envoy(), "-c", config, *quiet])


async def until_listening(child: Child, port: int) -> None:
    """Wait until something listens there. Raises `ChildError` when nothing does in time."""

    async def listens() -> bool:
        return await asyncio.to_thread(listening_problem, port) is not None

    await child.wait_ready(listens, timeout_s=READY_S)
