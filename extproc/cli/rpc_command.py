"""Makes a command of a coroutine that talks to a picker: the options, the errors, the end."""

import inspect
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec, get_type_hints

import typer

from extproc.cli.admin_client import (
    EXIT_CODES,
    AdminClient,
    Connection,
    ExitCode,
    PickerError,
    read_token,
)
from extproc.cli.durations import METAVAR, positive_duration
from extproc.cli.interrupt import run_interruptible
from extproc.core.address import is_loopback
from extproc.security.foreign_text import escaped

Rest = ParamSpec("Rest")

_PORT: Final = re.compile(r"^(\[[^\]]*\]|[^:]*):\d+$")
"""What an address with a port looks like; more colons are those of an IPv6 address."""
_HANDED: Final = "coxswain.connection"
"""In the context of all nested commands: the options that stand before the command's name."""


def _option(flag: str, type_: Any, default: Any, help_: str, **more: Any) -> tuple[Any, Any]:
    return Annotated[type_, typer.Option(flag, help=help_, **more)], default


def _file(flag: str, envvar: str, help_: str) -> tuple[Any, Any]:
    return _option(flag, Path | None, None, help_, metavar="FILE", envvar=envvar)


_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "picker": _option(
        "--picker",
        str,
        "127.0.0.1:9003",
        "The picker's admin port.",
        metavar="HOST:PORT",
        envvar="COXSWAIN_PICKER",
    ),
    "token_file": _file(
        "--token-file",
        "COXSWAIN_TOKEN_FILE",
        "The file with the bearer token; alternatively, set COXSWAIN_TOKEN to the token.",
    ),
    "tls": _option("--tls", bool, False, "Use TLS with the system's CAs."),
    "ca": _file("--ca", "COXSWAIN_CA", "Use TLS with the CA file (PEM)."),
    "cert": _file("--cert", "COXSWAIN_CERT", "The client certificate (mTLS)."),
    "key": _file("--key", "COXSWAIN_KEY", "The client certificate's private key."),
    "server_name": _option(
        "--server-name", str, "", "The name in the picker's certificate.", metavar="NAME"
    ),
    "timeout": _option(
        *("--timeout", float, 10.0, "The timeout of each response, such as 10s."),
        metavar=METAVAR,
        parser=positive_duration,
        show_default="10s",
    ),
}

CONNECTION_OPTIONS: Final = frozenset(_OPTIONS)
"""The names of the options that each command which talks to a picker takes besides its own."""


def talks(
    command: Callable[Concatenate[AdminClient, Rest], Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Let typer run `command` with a connected picker as its first argument.

    The options of the connection are added to its own, the exit codes to its help.
    """

    @wraps(command)
    def run(context: typer.Context, **values: Any) -> None:
        if context.invoked_subcommand is not None:
            _hand_down(context)
            return
        handed = context.meta.get(_HANDED, {})
        chosen = {name: values.pop(name) for name in _OPTIONS}
        chosen |= {name: handed[name] for name in handed if not _is_given(context, name)}

        async def talk() -> None:
            async with AdminClient(connection) as picker:
                await command(picker, **values)  # type: ignore[call-arg]  # those that it declares

        try:
            connection = _connection(**chosen)
            run_interruptible(talk)
        except PickerError as error:
            print(escaped(f"coxswain: {error}"), file=sys.stderr)
            raise typer.Exit(error.exit) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    _take_options(run, command)
    run.__doc__ = f"{inspect.getdoc(command)}\n\n{EXIT_CODES}"
    return run


def hands_down(command: Callable[Concatenate[typer.Context, Rest], None]) -> Callable[..., None]:
    """Let typer run `command`, a program's callback, which takes the options of the connection
    for the command behind it: `coxswain --picker X queue`. Its help does not list them. For a
    command that asks no picker they are an error."""

    @wraps(command)
    def run(context: typer.Context, **values: Any) -> None:
        own = {name: value for name, value in values.items() if name not in _OPTIONS}
        command(context, **own)  # type: ignore[call-arg]  # those that it declares
        _hand_down(context)
        below = context.command.get_command(context, context.invoked_subcommand or "")  # type: ignore[attr-defined]
        if context.meta[_HANDED] and below is not None and not _talks(below):
            flags = ", ".join("--" + name.replace("_", "-") for name in context.meta[_HANDED])
            raise typer.BadParameter(f"`coxswain {below.name}` does not take {flags} before it")

    _take_options(run, command, hidden=True)
    return run


def _take_options(run: Callable[..., None], command: Callable[..., Any], **more: Any) -> None:
    """Give `run` the signature that typer reads: the options of `command` and the connection's."""
    hints = get_type_hints(command, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    parameters = [
        inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        )
    ]
    parameters += [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    for name, (annotation, default) in _OPTIONS.items():
        type_, option = annotation.__origin__, copy(annotation.__metadata__[0])
        vars(option).update(more)
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[type_, option],
            )
        )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def connection_of(said: Mapping[str, Any], timeout_s: float) -> Connection:
    """The connection that these options mean, those that are not there being as by default.

    Raises `PickerError`.
    """
    chosen = {name: said.get(name, default) for name, (_, default) in _OPTIONS.items()}
    return _connection(**{**chosen, "timeout": timeout_s})


def _hand_down(context: typer.Context) -> None:
    """`coxswain endpoints --picker X drain Y` means what it says."""
    handed: dict[str, Any] = context.meta.setdefault(_HANDED, {})
    handed.update({name: context.params[name] for name in _OPTIONS if _is_given(context, name)})


def _is_given(context: typer.Context, name: str) -> bool:
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _talks(command: Any) -> bool:
    """Whether it, or a command below it, takes the options of the connection."""
    if CONNECTION_OPTIONS <= {parameter.name for parameter in command.params}:
        return True
    return any(_talks(below) for below in getattr(command, "commands", {}).values())


def _connection(
    picker: str,
    token_file: Path | None,
    tls: bool,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    server_name: str,
    timeout: float,
) -> Connection:
    import os

    if not _PORT.search(picker):
        example = f"{picker}:9003" if ":" not in picker else f"[{picker.strip('[]')}]:9003"
        raise PickerError(
            ExitCode.USAGE, f"--picker {picker}: the port is missing; write {example}"
        )
    if (cert is None) != (key is None):
        raise PickerError(ExitCode.USAGE, "give --cert and --key together")
    token = os.environ.get("COXSWAIN_TOKEN", "").strip()
    if token_file is not None:
        token = read_token(token_file)
    is_tls = tls or ca is not None or cert is not None
    if token and not is_tls and not is_loopback(picker):
        print(
            f"coxswain: the token is sent to {picker} unencrypted; use --ca or --tls",
            file=sys.stderr,
        )
    return Connection(
        address=picker,
        token=token,
        token_file=token_file,
        is_tls=is_tls,
        ca=ca,
        cert=cert,
        key=key,
        server_name=server_name,
        timeout_s=timeout,
    )
