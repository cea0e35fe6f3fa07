"""Selects the embedded fleet: real llama-servers if possible, else simulated ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from extproc.demo.fleet import (
    EmbeddedServer,
    llama_server_command,
    plan_fleet,
    simulator_command,
)
from extproc.demo.llama_server import find_llama_server

MODEL_FILE = "tiny.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """What was requested. A service time can only be kept by the simulator."""

    slots: Sequence[int] = (2, 2)
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
    from extproc.demo.model import write_model

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
