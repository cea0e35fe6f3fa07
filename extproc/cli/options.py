"""The options that commands share, and the settings that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from extproc.settings import Settings

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The YAML file with the settings; by default the file in COXSWAIN_CONFIG.",
    ),
]

EndpointOption = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        "-e",
        metavar="HOST:PORT,...",
        help="The address of a llama-server; repeat it or separate several with commas. "
        "Replaces the list in the file.",
    ),
]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting, for example --set queue.timeout_s=30; can be repeated.",
    ),
]

StatsdOption = Annotated[
    str | None,
    typer.Option(
        "--statsd-addr",
        metavar="HOST:PORT",
        help="Send gauges to StatsD at this address; the same as --set statsd.addr=HOST:PORT.",
    ),
]

InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Allow listening beyond loopback without a token and without mTLS."
    ),
]


def settings_from(
    config: Path | None,
    endpoints: list[str] | None = None,
    assignments: list[str] | None = None,
) -> Settings:
    """The settings that follow from the shared options, the environment and the file.

    Raises SettingsError, which `coxswain` prints line by line, ending with code 2.
    """
    from extproc.settings import load_settings

    flags: dict[str, Any] = {}
    for assignment in assignments or ():
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(
                "write KEY=VALUE, for example queue.timeout_s=30", param_hint="--set"
            )
        flags[key.strip()] = value
    if endpoints:
        flags["endpoints"] = servers_of(endpoints)
    return load_settings(config, flags=flags)


def servers_of(endpoints: list[str] | None) -> list[str]:
    """The single servers that `--endpoint` was given, with commas or blanks between them.

    An option that names none is a mistake (a script's variable was empty): it raises
    `typer.BadParameter`.
    """
    servers = [one for given in endpoints or () for one in given.replace(",", " ").split()]
    if endpoints and not servers:
        raise typer.BadParameter("it has no address; write host:port", param_hint="--endpoint")
    return servers
