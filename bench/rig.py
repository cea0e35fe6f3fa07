"""The processes of a benchmark: stand-in servers, a picker and an Envoy before it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import yaml

from bench import stand_in
from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import LOOPBACK, free_ports, listening_problem
from extproc.demo.process import Child, Children
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions, HostPort

READY_S = 30.0


async def start_stand_ins(
    children: Children, folder: Path, count: int, slots: int, service_s: float = 0.0
) -> list[int]:
    """Start `count` endpoints; returns their ports."""
    ports = free_ports(count)
    await start_stand_ins_on(children, folder, ports, slots, service_s)
    return ports


async def start_stand_ins_on(
    children: Children, folder: Path, ports: list[int], slots: int, service_s: float = 0.0
) -> None:
    config = folder / f"stand-in-{ports[0]}.yaml"
    config.write_text(stand_in.configuration(ports, slots, service_s))
    child = await _start_envoy(children, config, f"stand-in-{ports[0]}")
    await until_listening(child, ports[-1])


async def start_picker(
    children: Children,
    folder: Path,
    endpoints: list[int],
    settings: dict[str, Any] | None = None,
    admin: int | None = None,
    http: int | None = None,
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
        f"picker-{port}", [sys.executable, "-m", "extproc.cli", "serve", "--config", config]
    )
    await until_listening(child, port)
    return child, port


async def start_noop_picker(
    children: Children, endpoint: int, *, holds: bool = False
) -> tuple[Child, int]:
    """Start the floor; returns it and its gRPC port. One that holds never answers."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "bench.noop_picker", str(port), f"{LOOPBACK}:{endpoint}"]
    if holds:
        command.append("--hold")
    child = await children.start(f"noop-{port}", command)
    await until_listening(child, port)
    return child, port


async def start_envoy(
    children: Children, folder: Path, picker_port: int, *, asks_picker: bool = True
) -> int:
    """Start an Envoy with our own configuration; returns the port for clients."""
    _, port = await start_envoy_process(children, folder, picker_port, asks_picker=asks_picker)
    return port


async def start_envoy_process(
    children: Children,
    folder: Path,
    picker_port: int,
    *,
    asks_picker: bool = True,
    message_timeout_s: float = 1.0,
) -> tuple[Child, int]:
    """The same; returns the process, too."""
    port, admin = free_ports(2)
    options = EnvoyOptions(
        listener=HostPort(LOOPBACK, port),
        admin=HostPort(LOOPBACK, admin),
        picker=HostPort(LOOPBACK, picker_port),
        access_log=False,
        message_timeout_s=message_timeout_s,
    )
    tree = yaml.safe_load(bootstrap(options))
    if not asks_picker:
        _remove_picker_filter(tree)
    config = folder / f"envoy-{port}.yaml"
    config.write_text(yaml.safe_dump(tree))
    child = await _start_envoy(children, config, f"envoy-{port}")
    await until_listening(child, port)
    return child, port


def _remove_picker_filter(tree: Any) -> None:
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
