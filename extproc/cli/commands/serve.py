"""`coxswain serve`: the picker itself."""

import json
import os
import sys
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

from extproc.cli.loading import collector_at_rest
from extproc.cli.options import (
    ConfigOption,
    EndpointOption,
    InsecureOption,
    SetOption,
    StatsdOption,
    settings_from,
)

if TYPE_CHECKING:
    from extproc.settings import Settings


def serve(
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    assignment: SetOption = None,
    statsd_addr: StatsdOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Run the endpoint picker, until Ctrl-C or SIGTERM.

    `coxswain config envoy` prints Envoy's configuration; `coxswain up` runs both. The exit code is
    1 if a port is in use, and 2 if the settings are invalid.

    \b
    Examples:
      coxswain serve --endpoint 10.0.0.5:8080 --endpoint 10.0.0.6:8080
      coxswain serve --config coxswain.yaml --set log.format=json
    """
    with collector_at_rest():
        import uvloop

        from extproc.app.logs import set_up_logging
        from extproc.app.ports import ListenError
        from extproc.app.preflight import startup_problems
        from extproc.app.serve import serve as serve_alone
        from extproc.demo.own_module import own_module
        from extproc.processes.cluster_access import cluster_problems
        from extproc.settings import CONFIG_VARIABLE, SettingsError
        from extproc.transport.descriptors import raise_limit

    if statsd_addr is not None:
        assignment = [*(assignment or ()), f"statsd.addr={statsd_addr}"]

    if insecure:
        assignment = [*(assignment or ()), "listen.insecure=true"]

    load = partial(settings_from, config, endpoint, assignment)
    settings = load()
    set_up_logging(settings.log)
    raise_limit()
    if problems := (*startup_problems(settings), *cluster_problems(settings)):
        raise SettingsError(problems)
    options = {
        "config": None if config is None else str(config),
        "endpoints": endpoint,
        "assignments": assignment,
    }
    process = [*own_module("extproc.cli.process"), json.dumps(options)]
    file = str(config or os.environ.get(CONFIG_VARIABLE, ""))
    alone = not settings.fronts
    try:
        running = serve_alone(settings, load, file) if alone else _supervise(settings, process)
        code = uvloop.run(running)
    except ListenError as error:
        print(f"coxswain: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if code:
        raise typer.Exit(code)


def _supervise(settings: "Settings", process: Sequence[str]) -> Coroutine[None, None, int]:
    with collector_at_rest():
        from extproc.processes.supervisor import supervise

    return supervise(settings, process)
