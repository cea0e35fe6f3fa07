"""The embedded fleet: real llama-servers if possible, otherwise simulated ones."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import httpx

from extproc.core.address import Address
from extproc.demo.llama_server import find_llama_server
from extproc.demo.own_module import own_module
from extproc.demo.port import LOOPBACK, free_ports
from extproc.demo.process import Probe
from extproc.envoy_config.names import LLAMA_CLUSTER

MODEL_FILE = "tiny.gguf"
PROBE_TIMEOUT_S = 2.0
SPARE_HTTP_THREADS = 8
"""llama-server keeps one thread a connection: for probes, idle connections and its hidden line."""


PLAIN_SLOTS = 4
"""What a llama-server has without `--parallel` (docs/decisions/0214-what-an-overflow-does.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """One server to start: its port on loopback and its slots, each with a context of
    `context_tokens`. `is_plain` leaves their number to the server, as people do: they then share
    one context of that size."""

    port: int
    slots: int = PLAIN_SLOTS
    is_plain: bool = False
    context_tokens: int = 4096
    alias: str = "coxswain"

    @property
    def address(self) -> Address:
        return Address(LOOPBACK, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """What was requested: the slots of each server, None for one that is started plainly. A service
    time can only be kept by the simulator."""

    slots: Sequence[int | None] = (None, None)
    wants_simulator: bool = False
    service_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedFleet:
    """What will run: a name for one of its servers, a sentence for people, and the commands."""

    name: str
    sentence: str
    servers: tuple[EmbeddedServer, ...]
    command: Callable[[EmbeddedServer], list[str]]


def choose_fleet(fleet_options: FleetOptions, folder: Path) -> EmbeddedFleet:
    """Choose the servers and write the model into `folder` if they need one; starts nothing.

    Raises `LlamaServerError` when a server was named that is not there, `OSError` when the
    model cannot be written.
    """
    servers = tuple(plan_fleet(fleet_options.slots))
    reason = _why_simulated(fleet_options)
    if reason is not None:
        return EmbeddedFleet(
            name="simulator",
            sentence=f"Servers: Coxswain's simulator, without a model ({reason}).",
            servers=servers,
            command=lambda server: simulator_command(
                server, service_time_s=fleet_options.service_time_s
            ),
        )
    from extproc.demo.model import write_model  # noqa: PLC0415  # numpy and gguf load slowly

    binary = find_llama_server()
    assert binary is not None
    model = folder / MODEL_FILE
    write_model(model)
    return EmbeddedFleet(
        name="llama-server",
        sentence=f"Servers: real llama-server ({binary}) with a tiny random model: real slots, "
        "random text.",
        servers=servers,
        command=lambda server: llama_server_command(binary, model, server),
    )


def _why_simulated(fleet_options: FleetOptions) -> str | None:
    """The reason for the simulator; None when real servers can be had and were not declined."""
    if fleet_options.service_time_s is not None:
        return "needed for --service-time"
    if fleet_options.wants_simulator:
        return "as requested"
    if find_llama_server() is None:
        return "llama-server was not found; `make llama` builds it"
    if find_spec("gguf") is None:
        return "the package gguf, which writes the model, is missing; `pip install gguf`"
    return None


def plan_fleet(slots: Sequence[int | None]) -> list[EmbeddedServer]:
    """One server for each number of slots, or started plainly for None, on free ports."""
    ports = free_ports(len(slots))
    return [
        EmbeddedServer(port=port, slots=count or PLAIN_SLOTS, is_plain=count is None)
        for port, count in zip(ports, slots, strict=True)
    ]


def llama_server_command(
    binary: Path, model: Path, server: EmbeddedServer, *, extra: Sequence[str] = ()
) -> list[str]:
    """Run a real server on one thread, so that several fit on a small machine.

    Only options that llama-server has had for long, since `binary` may be the user's own.
    """
    slots = server.slots
    split = () if server.is_plain else ("--parallel", str(slots))
    context_tokens = server.context_tokens if server.is_plain else slots * server.context_tokens
    return [
        str(binary),
        *("--model", str(model)),
        *("--alias", server.alias),
        *("--host", LOOPBACK),
        *("--port", str(server.port)),
        *split,
        *("--ctx-size", str(context_tokens)),
        *("--threads", "1"),
        *("--threads-batch", "1"),
        *("--threads-http", str(2 * slots + SPARE_HTTP_THREADS)),
        "--slots",
        *extra,
    ]


def simulator_command(server: EmbeddedServer, *, service_time_s: float | None) -> list[str]:
    """Run a simulated server; without a service time its tokens have a pace."""
    return [
        *own_module("extproc.demo.simulator"),
        *("--alias", server.alias),
        *("--host", LOOPBACK),
        *("--port", str(server.port)),
        *("--slots", str(server.slots)),
        *("--context-tokens", str(server.context_tokens)),
        *(("--shared-context",) if server.is_plain else ()),
        *(("--service-time", str(service_time_s)) if service_time_s is not None else ()),
    ]


def server_environment() -> dict[str, str]:
    """Our environment without the variables by which llama-server would be set differently."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LLAMA_ARG_", "LLAMA_API_KEY"))
    }


def health_probe(
    client: httpx.AsyncClient,
    url: str,
    headers: Mapping[str, str] | None = None,
    status: int = httpx.codes.OK,
) -> Probe:
    """A probe that requests the URL with these headers; true after a response with the status."""

    async def probe() -> bool:
        try:
            answer = await client.get(url, headers=headers, timeout=PROBE_TIMEOUT_S)
        except httpx.TransportError:
            return False
        return answer.status_code == status

    return probe


def cluster_probe(client: httpx.AsyncClient, admin: str) -> Probe:
    """A probe of an Envoy by its admin page: true once it has the servers' cluster from the picker.
    Until then it rejects what goes to a server, and lets pass what the picker answers itself."""

    async def probe() -> bool:
        url = f"{admin}/clusters?format=json"
        try:
            answer = await client.get(url, timeout=PROBE_TIMEOUT_S)
        except httpx.TransportError:
            return False
        known = answer.json().get("cluster_statuses", []) if answer.is_success else []
        return any(cluster["name"] == LLAMA_CLUSTER for cluster in known)

    return probe
