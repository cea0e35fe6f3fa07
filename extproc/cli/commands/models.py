"""`coxswain models` and `coxswain logs`: the models of machines with a keeper, and of routers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from extproc.cli.admin_client import AdminClient, ExitCode, PickerError
from extproc.cli.output import (
    Format,
    OutputOption,
    console,
    plain,
    print_answer,
    print_json,
    print_list,
    print_table,
    seconds,
)
from extproc.cli.rpc_command import talks
from extproc.security.foreign_text import printable

if TYPE_CHECKING:
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

group = typer.Typer(rich_markup_mode=None)

TITLES: Final = (
    *("MODEL", "MACHINE", "STATE", "SINCE", "MIB", "QUEUED", "RUNNING", "SLOTS"),
    *("LOAD", "WHY"),
)
POOL_COLUMN: Final = 2
"""Where pools are configured."""
NUMBERS: Final = ("SINCE", "MIB", "QUEUED", "RUNNING", "SLOTS", "LOAD")
POWERS: Final = {
    "going-off": "; it is being put to sleep",
    "off": "; it is off, until requests wake it",
    "waking": "; it wakes",
}
ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="machine/model, or model if one machine has it."),
]


@group.callback(invoke_without_command=True)
@talks
async def models(picker: AdminClient, output: OutputOption = Format.TABLE) -> None:
    """Show the models of all machines with a keeper and of routers, and where they are loaded.

    \b
    Examples:
      coxswain models
      coxswain models -o json | jq '.models[] | select(.state == "loaded") | .name'
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.ListModels, pb.ListModelsRequest())
    if output is Format.JSON:
        print_list("models", plain(answer))
    else:
        _show(answer)


@group.command("replace")
@talks
async def replace(
    picker: AdminClient,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A model, on every machine that has it; or machine/model."
        ),
    ],
    cmd: Annotated[
        str,
        typer.Option("--cmd", metavar="COMMAND", help="The new command, as in the keeper's file."),
    ] = "",
    memory_mb: Annotated[
        int | None,
        typer.Option(
            "--memory-mb", metavar="MIB", min=0, help="The memory that it takes from now on."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Start a model's servers with another command, one machine after the other.

    On each machine the running requests end first. The new server must be healthy and complete a
    prompt before it gets requests and the next machine is touched. If one fails, all go back.

    The keepers must run with --allow-replace. Each keeps the new command in a file beside its own.

    \b
    Examples:
      coxswain models replace qwen --cmd 'llama-server -m /models/qwen3-8b-q5.gguf -ngl 99'
      coxswain models replace gpu-1/qwen --memory-mb 12000 --dry-run
    """
    from extproc.keeper.command_line import split_command
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    try:
        words = split_command(cmd)
    except ValueError as error:
        raise PickerError(ExitCode.USAGE, f"--cmd: {error}") from None
    if not words and memory_mb is None:
        raise PickerError(ExitCode.USAGE, "write --cmd or --memory-mb: what should be different?")
    request = pb.ReplaceModelRequest(
        model=model, cmd=words, memory_mb=memory_mb, is_dry_run=dry_run
    )
    async for step in picker.follow(picker.admin.ReplaceModel, request):
        if output is Format.JSON:
            print_json(plain(step), is_line=True)
        else:
            where = f"{printable(step.machine)}: " if step.machine else ""
            typer.echo(f"{where}{printable(step.text)}")
        if step.is_failed:
            raise typer.Exit(ExitCode.REJECTED)


def _show(answer: pb.ListModelsResponse) -> None:
    from rich.text import Text

    screen = console()
    if not answer.machines:
        screen.print(
            "no machine has a keeper, and no router leaves its models to Coxswain; "
            "`coxswain keeper --help` says how to run one"
        )
        return
    has_pools = any(machine.pool for machine in answer.machines)
    titles = list(TITLES)
    if has_pools:
        titles.insert(POOL_COLUMN, "POOL")
    rows = (
        [
            one.name,
            one.machine,
            *[one.pool] * has_pools,
            f"{one.state}, pinned" if one.is_pinned else one.state,
            seconds(one.state_age_s),
            str(one.memory_mb or ""),
            str(one.queued),
            str(one.running),
            str(one.slots),
            seconds(one.load_s) if one.HasField("load_s") else "",
            one.problem or one.last_change,
        ]
        for one in answer.models
    )
    print_table(titles, NUMBERS, rows)
    for machine in answer.machines:
        screen.print(Text(_machine_line(machine)))


def _machine_line(machine: pb.Machine) -> str:
    """What is used there."""
    pool = f" in the pool {machine.pool}" if machine.pool else ""
    if machine.is_router:
        most = f" of {machine.max_models}" if machine.max_models else ""
        gone = "" if machine.is_connected else "; it gets no requests now"
        return f"{machine.name} (a router){pool}: {machine.used_models}{most} models loaded{gone}"
    gone = "" if machine.is_connected else "; its keeper is not connected"
    gone = POWERS.get(machine.power, gone)
    if not machine.memory_mb:
        return f"{machine.name}{pool}: its keeper has not attached yet{gone}"
    return f"{machine.name}{pool}: {machine.used_mb} of {machine.memory_mb} MiB used{gone}"


@talks
async def load(
    picker: AdminClient, model: ModelArgument, output: OutputOption = Format.TABLE
) -> None:
    """Load a model now. Models that are not pinned make way for it, after their running requests.

    A model that has failed too often is tried again.

    \b
    Examples:
      coxswain load qwen
      coxswain load gpu-1/qwen
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.LoadModel, pb.LoadModelRequest(model=model))
    print_answer(output, answer, f"{model} is being loaded; `coxswain models` shows it")


@talks
async def unload(
    picker: AdminClient, model: ModelArgument, output: OutputOption = Format.TABLE
) -> None:
    """Unload a model after its running requests, until somebody asks for it. Ends its pin.

    \b
    Example:
      coxswain unload gpu-1/qwen
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.UnloadModel, pb.UnloadModelRequest(model=model))
    print_answer(output, answer, f"{model} is being unloaded")


@talks
async def pin(
    picker: AdminClient,
    model: ModelArgument,
    off: Annotated[
        bool, typer.Option("--off", help="Let it leave when others need its memory.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Load a model and keep it loaded, until `--off`.

    The keeper remembers it while it runs, so a restart of the picker changes nothing.

    \b
    Examples:
      coxswain pin gpu-1/qwen
      coxswain pin --off gpu-1/qwen
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    if off:
        ended = await picker.ask(picker.admin.UnpinModel, pb.UnpinModelRequest(model=model))
        print_answer(output, ended, f"{model} may leave when others need its memory")
        return
    pinned = await picker.ask(picker.admin.LoadModel, pb.LoadModelRequest(model=model, pin=True))
    print_answer(output, pinned, f"{model} stays loaded")


@talks
async def logs(
    picker: AdminClient,
    model: ModelArgument,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", metavar="N", min=0, max=2000, help="The number of last lines to show."
        ),
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show further lines, until Ctrl-C.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the log of a model's llama-server, from its keeper.

    llama-server does not write prompts into its log, unless it is started with --verbose.

    \b
    Examples:
      coxswain logs gpu-1/qwen
      coxswain logs -f qwen
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    request = pb.WatchLogRequest(model=model, lines=lines, follow=follow)
    async for part in picker.follow(picker.admin.WatchLog, request):
        if output is Format.JSON:
            print_json(plain(part), is_line=True)
            continue
        if part.dropped:
            typer.echo(f"[{part.dropped} lines were left out]", err=True)
        for line in part.lines:
            typer.echo(printable(line))
