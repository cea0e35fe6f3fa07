"""`coxswain config`: check, show and describe the settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from extproc.cli.exit_codes import ExitCode
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
    print_document,
    print_json,
)

if TYPE_CHECKING:
    from extproc.settings import Problem, Settings

ABOUT = """Check, show and describe the settings.

\b
Examples:
  coxswain config check --config coxswain.yaml
  coxswain config envoy > envoy.yaml
"""

group = typer.Typer(help=ABOUT, no_args_is_help=True, rich_markup_mode=None)
"""Other modules may add their commands to this group."""


def register(root: typer.Typer) -> None:
    """Add `coxswain config` to the root command."""
    root.add_typer(group, name="config")


@group.command()
def check(
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    assignment: SetOption = None,
    insecure: InsecureOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Check the settings and report every error.

    This includes errors that otherwise show only at a start: keys, tokens and certificates that
    cannot be read, or an unprotected port. Each error is reported with its file and line, its
    variable or its setting. The exit code is then 2. Settings that `coxswain config envoy` would
    reject are also reported, but a picker that another Envoy configuration uses does not need them.

    \b
    Examples:
      coxswain config check --config coxswain.yaml
      coxswain config check --endpoint 10.0.0.5:8080 --set queue.timeout_s=30
    """
    from extproc.app.preflight import envoy_problems, followed_problems, startup_problems
    from extproc.settings import SettingsError

    if insecure:
        assignment = [*(assignment or ()), "listen.insecure=true"]
    try:
        settings = settings_from(config, endpoint, assignment)
        if problems := (*startup_problems(settings), *followed_problems(settings)):
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
    count = len(settings.endpoints)
    named = f"{count} endpoint{'' if count == 1 else 's'}"
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

    sources = [name.name for name in settings.discovery.dns]
    if (file := settings.discovery.file) is None:
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

    The output is a settings file with the same effect. It never contains API keys: settings contain
    only the source of a key.

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
    import json

    from extproc.settings import settings_schema

    typer.echo(json.dumps(settings_schema(), indent=2))


@group.command()
def reference() -> None:
    """Print what each setting means.

    Markdown, with every default and environment variable; docs/settings.md is generated from it.

    \b
    Example:
      coxswain config reference | less
    """
    from extproc.settings import settings_reference

    typer.echo(settings_reference(), nl=False)
