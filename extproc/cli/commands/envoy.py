"""`coxswain config envoy`: the Envoy configuration that goes with the settings."""

from enum import Enum
from typing import Annotated

import typer

from extproc.cli.commands import config as config_command
from extproc.cli.options import ConfigOption, SetOption, settings_from
from extproc.cli.output import DocumentFormat, DocumentOption, print_json


class ModeChoice(Enum):
    """How Envoy learns the addresses of the servers."""

    DISCOVERY = "discovery"
    GATEWAY = "gateway"
    ORIGINAL_DST = "original-dst"


ModeOption = Annotated[
    ModeChoice | None,
    typer.Option(
        "--mode",
        help="discovery: the picker serves the addresses, and Envoy fails open; gateway: the "
        "same, with the protocol of the Gateway API inference extension; original-dst: each "
        "response of the picker names one address, and Envoy fails closed; it requires "
        "envoy.discovery: false, for the picker too. The default depends on envoy.discovery.",
    ),
]

SnippetOption = Annotated[
    bool,
    typer.Option(
        "--snippet", help="Print only the parts to add to the configuration of an existing Envoy."
    ),
]

ServedClusterOption = Annotated[
    bool,
    typer.Option(
        "--served-cluster",
        help="With --snippet: the picker serves the servers' cluster and its changes, so that "
        "new CAs and keys need no new parts. For an Envoy without a cds_config of its own.",
    ),
]


def register(_root: typer.Typer) -> None:
    """Add `coxswain config envoy` to the config group."""
    config_command.group.command()(envoy)


def envoy(
    snippet: SnippetOption = False,
    served_cluster: ServedClusterOption = False,
    mode: ModeOption = None,
    config: ConfigOption = None,
    assignment: SetOption = None,
    output: DocumentOption = DocumentFormat.YAML,
) -> None:
    """Print Envoy's configuration.

    Print it again when the settings under `envoy` change.

    \b
    Examples:
      coxswain config envoy > envoy.yaml && envoy -c envoy.yaml
      coxswain config envoy --snippet --config coxswain.yaml
      coxswain config envoy --snippet --served-cluster
      coxswain config envoy --set envoy.discovery=false
    """
    from dataclasses import replace

    import yaml

    from extproc.app.envoy import envoy_options
    from extproc.envoy_config.documents import bootstrap
    from extproc.envoy_config.options import Mode, OptionsError
    from extproc.envoy_config.snippet import snippet as snippet_of
    from extproc.security.path_rule import PathRuleError

    if served_cluster and not snippet:
        raise typer.BadParameter(
            "use it with --snippet; the complete configuration always has it",
            param_hint="--served-cluster",
        )
    settings = settings_from(config, assignments=assignment)
    if mode is ModeChoice.ORIGINAL_DST and settings.envoy.discovery:
        raise typer.BadParameter(
            "set envoy.discovery: false, for the picker too; otherwise its responses name "
            "several servers, and Envoy rejects each with 503",
            param_hint="--mode original-dst",
        )
    try:
        options = envoy_options(settings)
        if mode is not None:
            options = replace(options, mode=Mode(mode.value))
        text = snippet_of(options, serves_cluster=served_cluster) if snippet else bootstrap(options)
    except (OptionsError, PathRuleError) as error:
        raise typer.BadParameter(str(error)) from None
    if output is DocumentFormat.JSON:
        print_json(yaml.safe_load(text))
    else:
        typer.echo(text, nl=False)
