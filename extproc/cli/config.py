"""`coxswain config`: check, show and describe the settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from extproc.cli.exits import Exit
from extproc.cli.options import ConfigOption, EndpointOption, SetOption, settings_from
from extproc.cli.output import (
    DocumentFormat,
    DocumentOption,
    Format,
    OutputOption,
    print_document,
    print_json,
)

if TYPE_CHECKING:
    from extproc.settings import Settings

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
    output: OutputOption = Format.TABLE,
) -> None:
    """Check the settings; name every mistake.

    Each mistake is told with its file and line, or its variable. Ends with 2 when there is one.

    \b
    Examples:
      coxswain config check --config coxswain.yaml
      coxswain config check --endpoint 10.0.0.5:8080 --set queue.timeout_s=30
    """
    from extproc.settings import SettingsError, read_api_keys

    try:
        settings = settings_from(config, endpoint, assignment)
        read_api_keys(settings)
    except SettingsError as error:
        if output is Format.JSON:
            print_json({"problems": [asdict(problem) for problem in error.problems]})
            raise typer.Exit(Exit.USAGE) from None
        raise
    if output is Format.JSON:
        print_json({"problems": []})
        return
    count = len(settings.endpoints)
    named = f"{count} endpoint{'' if count == 1 else 's'}"
    further = "".join(f", and those of {source}" for source in _followed(settings))
    typer.echo(f"the settings are good: {named}{further}")


def _followed(settings: Settings) -> list[str]:
    """Where more endpoints come from, without asking there."""
    file = settings.discovery.file
    return [*([] if file is None else [file]), *(name.name for name in settings.discovery.dns)]


@group.command()
def show(
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    assignment: SetOption = None,
    output: DocumentOption = DocumentFormat.YAML,
) -> None:
    """Print the settings in force.

    The output is a settings file that would give them again. API keys are never in it:
    settings only say where a key is.

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

    Markdown, with every default and environment variable: docs/settings.md is made of it.

    \b
    Example:
      coxswain config reference | less
    """
    from extproc.settings import settings_reference

    typer.echo(settings_reference(), nl=False)
