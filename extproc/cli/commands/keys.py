"""`coxswain keys`: the API keys of clients."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from extproc.cli.admin_client import ExitCode
from extproc.cli.durations import METAVAR, duration, positive_duration
from extproc.cli.options import ConfigOption, settings_from
from extproc.cli.output import Format, OutputOption, is_output_closed, print_json, print_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from extproc.settings.client_keys import ClientKeyEntry

ABOUT = """Add, rotate, list and revoke the API keys of clients.

The keys are in the file that the setting clients.keys_file names, as SHA-256 digests. A picker with
this setting uses a change within two seconds; nothing needs a restart.

\b
Examples:
  coxswain keys add web --file /etc/coxswain/keys
  coxswain keys list
  coxswain keys rotate web --overlap 24h
  coxswain keys revoke web
"""

MAX_INPUT_CHARS = 4096

group = typer.Typer(help=ABOUT, no_args_is_help=True, rich_markup_mode=None)

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="The file with the keys; by default clients.keys_file of the settings.",
    ),
]
ExpiresOption = Annotated[
    str,
    typer.Option(
        "--expires",
        metavar="TIME",
        help="When the key stops opening: a time with its zone, a date (its end by UTC), or a "
        "duration from now.",
    ),
]
StdinOption = Annotated[
    bool,
    typer.Option("--stdin", help="Read a key that you have from stdin instead of making one."),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the client.")]


@group.command()
def add(
    name: NameArgument,
    stdin: StdinOption = False,
    expires: ExpiresOption = "",
    file: FileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Add a key of a client and print it.

    The key is shown once: the file has only its digest. If it cannot be printed, none is added.

    \b
    Examples:
      coxswain keys add web
      coxswain keys add web --stdin < key-of-web
      coxswain keys add web --expires 2026-12-31
      KEY=$(coxswain keys add batch --file /etc/coxswain/keys)
    """
    from extproc.settings.client_keys_file import add_key, new_key

    place = _file(file, config)
    key = sys.stdin.readline(MAX_INPUT_CHARS).strip() if stdin else new_key()

    def show(entry: ClientKeyEntry) -> None:
        if output is Format.JSON:
            shown = {} if stdin else {"key": key}
            _print_once({**_plain(entry), **shown}, is_needed=not stdin)
        elif not stdin:
            _print_once(key)

    with _reported():
        entry = add_key(place, name, key, _today(), _time(expires), show)
    if output is Format.TABLE:
        _say_added(entry, place, stdin=stdin)


@group.command()
def rotate(
    name: NameArgument,
    overlap: Annotated[
        float,
        typer.Option(
            "--overlap",
            metavar=METAVAR,
            parser=duration,
            show_default="24h",
            help="How long the keys that the client has now open beside the new one.",
        ),
    ] = 86_400.0,
    stdin: StdinOption = False,
    expires: ExpiresOption = "",
    file: FileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Add a new key of a client and print it; its other keys expire after the overlap.

    A key that expires sooner stays as it is.

    \b
    Examples:
      coxswain keys rotate web
      coxswain keys rotate web --overlap 7d --expires 2027-06-30
    """
    from extproc.settings.client_keys_file import new_key, rotate_key

    place = _file(file, config)
    key = sys.stdin.readline(MAX_INPUT_CHARS).strip() if stdin else new_key()

    def show(entry: ClientKeyEntry, ending: tuple[ClientKeyEntry, ...]) -> None:
        if output is Format.JSON:
            shown = {} if stdin else {"key": key}
            ends = [_plain(each) for each in ending]
            _print_once({**_plain(entry), **shown, "ending": ends}, is_needed=not stdin)
        elif not stdin:
            _print_once(key)

    with _reported():
        entry, ending = rotate_key(place, name, key, _today(), _in(overlap), _time(expires), show)
    if output is Format.TABLE:
        _say_added(entry, place, stdin=stdin)
        for each in ending:
            typer.echo(f"key {each.id} of {name} expires at {each.expires}", err=True)


@group.command(name="list")
def list_(
    file: FileOption = None, config: ConfigOption = None, output: OutputOption = Format.TABLE
) -> None:
    """List the keys of clients: name, id, dates and when they expire, never the key.

    \b
    Examples:
      coxswain keys list
      coxswain keys list -o json | jq -r .keys[].name
    """
    from extproc.settings.client_keys import read_client_keys

    place = _file(file, config)
    entries = read_client_keys(place)
    if output is Format.JSON:
        print_list("keys", {"keys": [_plain(entry) for entry in entries]})
        return
    _print_table(entries)
    plain = sum(entry.key is not None for entry in entries)
    if plain:
        typer.echo(
            f"{place} holds {plain} of these keys itself: replace one by its digest with "
            "`coxswain keys revoke NAME --id ID` and `coxswain keys add NAME --stdin`",
            err=True,
        )


@group.command()
def revoke(
    name: NameArgument,
    key_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Only the key with this id, see `keys list`."),
    ] = None,
    file: FileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Revoke the keys of a client: they stop opening within two seconds.

    Requests that run are not interrupted. `coxswain requests cancel` ends one.

    \b
    Examples:
      coxswain keys revoke web
      coxswain keys revoke web --id 5f2b8c91d0aa
    """
    from extproc.settings.client_keys_file import revoke_keys

    place = _file(file, config)
    with _reported():
        entries = revoke_keys(place, name, key_id)
    if output is Format.JSON:
        print_list("keys", {"keys": [_plain(entry) for entry in entries]})
        return
    for entry in entries:
        typer.echo(f"revoked key {entry.id} of {name}")


def _print_once(value: str | dict[str, Any], *, is_needed: bool = True) -> None:
    """Print a key, or JSON with one. Raises `KeysFileError` where nobody gets it."""
    from extproc.settings.client_keys_file import KeysFileError

    if is_needed and is_output_closed():
        raise KeysFileError("stdout is closed, so nobody would get the key: nothing was changed")
    try:
        if isinstance(value, str):
            typer.echo(value)
        else:
            print_json(value)
    except OSError as error:
        with suppress(OSError):
            sys.stdout.close()
        reason = (error.strerror or "it failed").lower()
        raise KeysFileError(f"the key cannot be printed ({reason}): nothing was changed") from None


def _say_added(entry: ClientKeyEntry, place: Path, *, stdin: bool) -> None:
    typer.echo(f"added key {entry.id} of {entry.name} to {place}{_until(entry)}", err=True)
    if not stdin:
        typer.echo("keep the key: it is not shown again", err=True)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _in(seconds: float) -> str:
    """The time after these seconds, as the file says it."""
    try:
        end = datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        raise typer.BadParameter("this is too far away") from None
    return f"{end:%Y-%m-%dT%H:%M:%SZ}"


def _time(text: str) -> str:
    """A date or a time as it is, a duration as the time when it is over."""
    from extproc.settings.client_keys import TIME_FORM, unix_time_of

    if not text or unix_time_of(text) is not None:
        return text
    try:
        return _in(positive_duration(text))
    except typer.BadParameter:
        hint = f"write {TIME_FORM}, or a duration such as 90d"
        raise typer.BadParameter(hint, param_hint="--expires") from None


def _until(entry: ClientKeyEntry) -> str:
    return f"; it expires at {entry.expires}" if entry.expires else ""


def _file(file: Path | None, config: Path | None) -> Path:
    if file is not None:
        return file.expanduser()
    named = settings_from(config).clients.keys_file
    if named is None:
        raise typer.BadParameter(
            "give the file, or --config with settings that have clients.keys_file",
            param_hint="--file",
        )
    return Path(named).expanduser()


@contextmanager
def _reported() -> Iterator[None]:
    """End the command with what is wrong with the file, or with the change of it."""
    from extproc.settings.client_keys_file import KeysFileError, NoSuchKeyError

    try:
        yield
    except KeysFileError as error:
        typer.echo(f"coxswain: {error}", err=True)
        code = ExitCode.NOT_FOUND if isinstance(error, NoSuchKeyError) else ExitCode.REJECTED
        raise typer.Exit(code) from None


def _plain(entry: ClientKeyEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "id": entry.id,
        "added": entry.added or None,
        "expires": entry.expires or None,
        "is_hashed": entry.key is None,
    }


def _end_of(entry: ClientKeyEntry) -> str:
    """When it expires: the date as the file has it, of a time the date and minute by UTC."""
    if entry.ends_at is None:
        return "-"
    end = datetime.fromtimestamp(entry.ends_at, UTC)
    is_date = len(entry.expires) == len("2026-12-31")
    if end <= datetime.now(UTC):
        return f"expired {entry.expires if is_date else end.date()}"
    return entry.expires if is_date else f"{end:%Y-%m-%d %H:%M}"


def _print_table(entries: tuple[ClientKeyEntry, ...]) -> None:
    from extproc.cli.output import print_table

    print_table(
        ("NAME", "ID", "ADDED", "EXPIRES (UTC)", "IN FILE"),
        (),
        (
            (
                entry.name,
                entry.id,
                entry.added or "-",
                _end_of(entry),
                "digest" if entry.key is None else "key",
            )
            for entry in entries
        ),
    )
