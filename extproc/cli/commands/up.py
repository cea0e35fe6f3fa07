"""`coxswain up`: Envoy, the picker and a fleet in one command."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from extproc.cli.durations import METAVAR, duration
from extproc.cli.options import ConfigOption, SetOption, servers_of, settings_from

if TYPE_CHECKING:
    from extproc.demo.fleet import FleetOptions
    from extproc.settings import Settings

KEPT_SLOTS: Final = 2
SLOTS: Final = re.compile("[1-9][0-9]{0,3}")

OwnEndpointOption = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        "-e",
        metavar="HOST:PORT,...",
        help="The address of your llama-server; repeat it or separate several with commas. "
        "Without any, also in the settings, a fleet is started here.",
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port",
        "-p",
        metavar="PORT",
        min=0,
        max=65_535,
        help="Envoy's port, by default 10000; 0 selects any free port.",
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="IP",
        help="The address on which Envoy serves clients; by default that of envoy.listen if it"
        " is set, otherwise loopback.",
    ),
]
CountOption = Annotated[
    int,
    typer.Option(
        "--endpoints-count",
        metavar="N",
        min=1,
        max=64,
        help="The number of servers in the embedded fleet.",
    ),
]
SlotsOption = Annotated[
    str | None,
    typer.Option(
        "--slots",
        metavar="N,...",
        help="The slots of each server, each with a context of its own; with 2,4 the second "
        "server has four. By default 4 that share one context.",
    ),
]
SimulatorOption = Annotated[
    bool,
    typer.Option("--simulator", help="Simulate the servers even if a llama-server is found."),
]
ModelsOption = Annotated[
    int | None,
    typer.Option(
        "--models",
        metavar="N",
        min=1,
        max=16,
        help="Start a keeper with N tiny models and memory for one: they are loaded when they "
        "are asked for. Needs a llama-server.",
    ),
]
ServiceTimeOption = Annotated[
    float | None,
    typer.Option(
        "--service-time",
        metavar=METAVAR,
        parser=duration,
        help="The duration of each response, such as 500ms or 5s; simulates the servers.",
    ),
]


def up(
    config: ConfigOption = None,
    endpoint: OwnEndpointOption = None,
    assignment: SetOption = None,
    host: HostOption = None,
    port: PortOption = None,
    endpoints_count: CountOption = 2,
    slots: SlotsOption = None,
    models: ModelsOption = None,
    simulator: SimulatorOption = False,
    service_time: ServiceTimeOption = None,
) -> None:
    """Run Envoy, the picker and a fleet of llama-servers, until Ctrl-C.

    The embedded fleet is of real llama-servers with a tiny model if llama-server is found,
    otherwise simulated. The exit code is 1 if a part is missing, or if the picker or Envoy ends by
    itself.

    \b
    Examples:
      coxswain up
      coxswain up --endpoint 10.0.0.5:8080,10.0.0.6:8080
      coxswain up --service-time 2 --slots 2,4 --port 8000
      coxswain up --models 3
      coxswain up --host 0.0.0.0
    """
    import asyncio

    from extproc.demo.listen_addresses import (
        ListenAddressError,
        clients_listen,
        listen_addresses,
        settle,
    )
    from extproc.demo.up import UpOptions
    from extproc.demo.up import up as run

    endpoints = servers_of(endpoint)
    # A line for each request belongs into a proxy's log, not into a demonstration's memory.
    assignments = ["envoy.access_log=false", *(assignment or ())]
    assignments.append(clients_listen(settings_from(config, endpoints, assignments), host, port))
    settings = settings_from(config, endpoints, assignments)
    try:
        assignments += settle(listen_addresses(settings))
    except ListenAddressError as error:
        print(f"coxswain up: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    settings = settings_from(config, endpoints, assignments)
    count = endpoints_count if models is None else models
    fleet_options = _fleet_options(settings, slots, count, simulator, service_time)
    options = UpOptions(
        settings=settings,
        serve_arguments=_serve_arguments(config, endpoints, assignments),
        fleet_options=fleet_options if models is None else None,
        kept_slots=() if models is None else _kept_slots(fleet_options, models),
    )
    raise typer.Exit(asyncio.run(run(options)))


def _serve_arguments(
    config: Path | None, endpoints: list[str], assignments: list[str]
) -> list[str]:
    arguments = [] if config is None else ["--config", str(config)]
    for endpoint in endpoints:
        arguments += ["--endpoint", endpoint]
    for assignment in assignments:
        arguments += ["--set", assignment]
    return arguments


def _fleet_options(
    settings: Settings, slots: str | None, count: int, simulator: bool, service_time_s: float | None
) -> FleetOptions | None:
    """The fleet to start here; None when the settings name servers, or where to learn of some."""
    from extproc.demo.fleet import FleetOptions

    found = settings.discovery
    if settings.endpoints or found.file is not None or found.dns or found.kubernetes:
        if simulator or service_time_s is not None:
            raise typer.BadParameter(
                "your own servers cannot be simulated; remove one of the two options"
            )
        return None
    if slots is None:
        return FleetOptions(
            slots=[None] * count, wants_simulator=simulator, service_time_s=service_time_s
        )
    given = slots.split(",")
    if not all(SLOTS.fullmatch(number.strip()) and int(number) <= 1024 for number in given):
        raise typer.BadParameter(
            "write whole numbers from 1 to 1024, for example 2 or 2,4", param_hint="--slots"
        )
    numbers = [int(number) for number in given]
    if len(numbers) == 1:
        numbers *= count
    return FleetOptions(slots=numbers, wants_simulator=simulator, service_time_s=service_time_s)


def _kept_slots(fleet_options: FleetOptions | None, count: int) -> list[int]:
    """The slots of each model of a keeper."""
    if fleet_options is None:
        raise typer.BadParameter("remove the other servers", param_hint="--models")
    if fleet_options.wants_simulator or fleet_options.service_time_s is not None:
        raise typer.BadParameter("a keeper starts no simulator", param_hint="--models")
    if len(fleet_options.slots) != count:
        raise typer.BadParameter("write one number, or one for each model", param_hint="--slots")
    return [count or KEPT_SLOTS for count in fleet_options.slots]
