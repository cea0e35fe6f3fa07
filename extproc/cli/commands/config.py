"""`coxswain config`: check, show, describe and reload the settings, and print Envoy's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from extproc.cli.admin_client import AdminClient, ExitCode
from extproc.cli.options import (
    ConfigOption,
    EndpointOption,
    InsecureOption,
    SetOption,
    settings_from,
)
from extproc.cli.output import (
    DocumentFormat,
    DocumentOption,
    Format,
    OutputOption,
    counted,
    plain,
    print_document,
    print_json,
)
from extproc.cli.rpc_command import talks

if TYPE_CHECKING:
    from extproc.settings import Problem, Settings

ABOUT = """Check, show and describe the settings.

\b
Examples:
  coxswain config check --config coxswain.yaml
  coxswain config envoy > envoy.yaml
"""

_NOTHING: Final = (
    "nothing is set, so there is nothing to check; name a settings file with --config or in "
    "COXSWAIN_CONFIG"
)

group = typer.Typer(help=ABOUT, no_args_is_help=True, rich_markup_mode=None)


@group.command()
def check(
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    assignment: SetOption = None,
    insecure: InsecureOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Check the settings and report every error; whether ports are in use is not checked.

    This includes errors that otherwise show only at a start: files that cannot be read or written,
    or an unprotected port. Each error is reported with its file and line, its variable or its
    setting; the exit code is then 2.

    \b
    Examples:
      coxswain config check --config coxswain.yaml
      coxswain config check --endpoint 10.0.0.5:8080 --set queue.timeout_s=30
    """
    from extproc.app.preflight import envoy_problems, followed_problems, startup_problems
    from extproc.processes.cluster_access import cluster_problems
    from extproc.settings import Problem, SettingsError

    if insecure:
        assignment = [*(assignment or ()), "listen.insecure=true"]
    try:
        settings = settings_from(config, endpoint, assignment)
        if not settings.model_fields_set:
            raise SettingsError(
                [Problem(where="" if config is None else str(config), key="", message=_NOTHING)]
            )
        found = (startup_problems, cluster_problems, followed_problems)
        if problems := [problem for check in found for problem in check(settings)]:
            raise SettingsError(problems)
    except SettingsError as error:
        if output is Format.JSON:
            _print_problems(error.problems)
            raise typer.Exit(ExitCode.USAGE) from None
        raise
    at_envoy = envoy_problems(settings)
    if output is Format.JSON:
        _print_problems((), at_envoy)
        return
    named = counted(len(settings.endpoints), "endpoint")
    further = "".join(f", and those from {source}" for source in _followed(settings))
    typer.echo(f"the settings are valid: {named}{further}")
    if at_envoy:
        typer.echo("`coxswain config envoy` would reject them:")
        for problem in at_envoy:
            typer.echo(f"  {problem}")


def _print_problems(problems: Iterable[Problem], at_envoy: Iterable[Problem] = ()) -> None:
    print_json(
        {
            "problems": [asdict(problem) for problem in problems],
            "envoy_problems": [asdict(problem) for problem in at_envoy],
        }
    )


def _followed(settings: Settings) -> list[str]:
    """Where more endpoints come from, without asking there; an absent file is waited for."""
    from extproc.app.preflight import awaits_file

    discovery = settings.discovery
    sources = [
        *(name.name for name in discovery.dns),
        *(one.address for one in discovery.kubernetes),
    ]
    if (file := discovery.file) is None:
        return sources
    return [f"{file} (does not exist yet)" if awaits_file(settings) else file, *sources]


@group.command()
def show(
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    assignment: SetOption = None,
    output: DocumentOption = DocumentFormat.YAML,
) -> None:
    """Print the settings in effect.

    The output is a settings file with the same effect, without keys.

    \b
    Example:
      COXSWAIN_QUEUE__TIMEOUT_S=30 coxswain config show --config coxswain.yaml
    """
    settings = settings_from(config, endpoint, assignment)
    content = settings.model_dump(mode="json")
    content["endpoints"] = [
        endpoint.model_dump(mode="json", exclude_none=True) for endpoint in settings.endpoints
    ]
    print_document(content, output)


@group.command()
def schema() -> None:
    """Print the settings file's JSON schema.

    Editors complete and check YAML with it.

    \b
    Example:
      coxswain config schema > coxswain.schema.json
    """
    from extproc.settings import settings_schema

    typer.echo(json.dumps(settings_schema(), indent=2))


@group.command()
def reference() -> None:
    """Print what each setting means.

    Markdown, with every default; docs/settings.md is generated from it.

    \b
    Example:
      coxswain config reference | less
    """
    from extproc.settings import settings_reference

    typer.echo(settings_reference(), nl=False)


class ModeChoice(Enum):
    """How Envoy learns the addresses of the servers."""

    DISCOVERY = "discovery"
    GATEWAY = "gateway"
    ORIGINAL_DST = "original-dst"


ModeOption = Annotated[
    ModeChoice | None,
    typer.Option(
        "--mode",
        help="discovery: the picker serves the addresses; gateway: the same in full duplex, as "
        "gateways do; original-dst: each response of the picker names one address "
        "(docs/envoy.md). By default the first or the last, as envoy.discovery says.",
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
        help="With --snippet: the picker serves the servers' cluster, so that new CAs and keys"
        " need no new parts. For an Envoy without a cds_config of its own.",
    ),
]


@group.command()
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
    import yaml

    from extproc.envoy_config.documents import bootstrap
    from extproc.envoy_config.options import Mode, OptionsError, envoy_options
    from extproc.envoy_config.snippet import snippet as snippet_of

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
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from None
    if output is DocumentFormat.JSON:
        print_json(yaml.safe_load(text))
    else:
        typer.echo(text, nl=False)


@group.command()
@talks
async def reload(
    picker: AdminClient,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would change.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Reload the settings of a running picker.

    Settings that can change while requests run take effect at once; the others are listed as
    needing a restart. If the settings have an error, the old ones stay (exit code 1).

    \b
    Example:
      coxswain config reload --dry-run
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(
        picker.admin.ReloadSettings, pb.ReloadSettingsRequest(dry_run=dry_run)
    )
    if output is Format.JSON:
        print_json(plain(answer))
        return
    if answer.applied:
        typer.echo(f"{'would change' if dry_run else 'changed'}: {', '.join(answer.applied)}")
    if answer.needs_restart:
        typer.echo(f"after a restart: {', '.join(answer.needs_restart)}")
    if not answer.applied and not answer.needs_restart:
        typer.echo("nothing changed")


@group.command()
@talks
async def live(picker: AdminClient, output: DocumentOption = DocumentFormat.YAML) -> None:
    """Print the settings that a running picker uses. They contain no secrets.

    \b
    Examples:
      coxswain config live | grep timeout_s
      coxswain config live -o json | jq .queue.timeout_s
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.GetSettings, pb.GetSettingsRequest())
    source = f"# from {answer.file}\n" if answer.file else ""
    print_document(json.loads(answer.json), output, heading=source)
