"""`coxswain endpoints`: list, add, remove and drain endpoints."""

from typing import Annotated

import typer

from extproc.cli import completion
from extproc.cli.admin_client import AdminClient
from extproc.cli.durations import METAVAR, duration
from extproc.cli.output import (
    Format,
    OutputOption,
    PoolOption,
    WatchOption,
    counted,
    plain,
    print_answer,
    print_list,
)
from extproc.cli.rpc_command import talks

group = typer.Typer(rich_markup_mode=None)

_METAVAR, _HELP = "ENDPOINT", "The endpoint's address (host:port), name or host name."
_METAVARS, _HELPS = "ENDPOINT...", f"{_HELP} Several can be given."
ActiveArguments = Annotated[
    list[str],
    typer.Argument(metavar=_METAVARS, help=_HELPS, autocompletion=completion.active_endpoints),
]
IdleArguments = Annotated[
    list[str],
    typer.Argument(metavar=_METAVARS, help=_HELPS, autocompletion=completion.idle_endpoints),
]
AddedArgument = Annotated[
    str, typer.Argument(metavar=_METAVAR, help=_HELP, autocompletion=completion.added_endpoints)
]


@group.callback(invoke_without_command=True)
@talks
async def endpoints(
    picker: AdminClient,
    pool: PoolOption = "",
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """Show all endpoints: state, slots, models and issues.

    IDLE slots are available now, so a server that gets no requests has none. LEASED slots serve
    requests that came through this picker, FOREIGN slots other requests: `?` if the server does not
    show them. AGE is the time since the last scrape. KIND is shown if not all are llama-servers.

    \b
    Examples:
      coxswain endpoints
      coxswain endpoints --watch
      coxswain endpoints -o json | jq -r '.endpoints[] | select(.health=="down") | .address'
    """
    await _list(picker, output, pool, is_watching=watch)


@group.command("list")
@talks
async def list_endpoints(
    picker: AdminClient,
    pool: PoolOption = "",
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """Show all endpoints, as `coxswain endpoints` does.

    \b
    Example:
      coxswain endpoints list
    """
    await _list(picker, output, pool, is_watching=watch)


async def _list(picker: AdminClient, output: Format, pool: str, *, is_watching: bool) -> None:
    from extproc.cli.screens.endpoint_table import show
    from extproc.cli.screens.endpoint_watch import watch_endpoints
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    if is_watching:
        await watch_endpoints(picker, output, pool)
        return
    found = await picker.all_endpoints(pool)
    if output is Format.JSON:
        print_list("endpoints", {"endpoints": [plain(endpoint) for endpoint in found]})
    else:
        status = await picker.ask(picker.admin.GetStatus, pb.GetStatusRequest())
        show(found, status.problems)


@group.command()
@talks
async def add(
    picker: AdminClient,
    address: Annotated[
        str,
        typer.Argument(
            metavar="HOST:PORT", help="The server's address; https://HOST:PORT for TLS."
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The name of the endpoint.")
    ] = "",
    slots: Annotated[
        int,
        typer.Option(
            "--slots",
            metavar="N",
            min=0,
            help="The number of slots; 0 uses the number that the server reports.",
        ),
    ] = 0,
    api_key_env: Annotated[
        str,
        typer.Option(
            "--api-key-env",
            metavar="NAME",
            help="The picker's environment variable with the server's API key, one of "
            "admin.api_key_envs.",
        ),
    ] = "",
    api_key_file: Annotated[
        str,
        typer.Option(
            "--api-key-file",
            metavar="FILE",
            help="The file with the server's API key where the picker runs, in "
            "admin.api_key_folder.",
        ),
    ] = "",
    inject_key: Annotated[
        bool,
        typer.Option("--inject-key", help="Let Envoy send the server its key with each request."),
    ] = False,
    may_sleep: Annotated[
        bool | None,
        typer.Option(
            "--may-sleep/--stays-awake",
            help="Whether it was started with --sleep-idle-seconds; by default Coxswain detects "
            "it.",
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="The kind of the server: auto, llama-server, ollama, vllm, sglang, "
            "lm-studio or openai (any other).",
        ),
    ] = "",
    pool: Annotated[
        str,
        typer.Option(
            "--pool", metavar="NAME", help="The pool that it is in; by default the default one."
        ),
    ] = "",
    server_ca: Annotated[
        str,
        typer.Option(
            "--server-ca",
            metavar="FILE",
            help="The CA file for its certificate, PEM; a file where the picker runs.",
        ),
    ] = "",
    certificate_name: Annotated[
        str,
        typer.Option(
            "--certificate-name",
            metavar="NAME",
            help="The name in its certificate, if it is not the host.",
        ),
    ] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Add a server to the fleet, until the picker restarts.

    It gets requests when a scrape has shown it ready and every Envoy knows it. To keep it after a
    restart, add it to the settings or to a discovery file.

    \b
    Examples:
      coxswain endpoints add 10.0.0.7:8080 --name gpu-7
      coxswain endpoints add https://gpu-8.lan:8443 --server-ca /etc/coxswain/lan.pem
    """
    from extproc.cli.screens.endpoint_table import called
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    request = pb.AddEndpointRequest(
        address=address,
        name=name,
        slots=slots,
        ca_file=server_ca,
        server_name=certificate_name,
        api_key_env=api_key_env,
        api_key_file=api_key_file,
        inject_key=inject_key,
        may_sleep=may_sleep,
        kind=kind,
        pool=pool,
    )
    answer = await picker.ask(picker.admin.AddEndpoint, request)
    print_answer(output, answer, f"{called(answer.endpoint)} is in the fleet")


@group.command()
@talks
async def remove(
    picker: AdminClient, endpoint: AddedArgument, output: OutputOption = Format.TABLE
) -> None:
    """Remove a server that `endpoints add` added. Its running requests finish.

    \b
    Example:
      coxswain endpoints remove 10.0.0.7:8080
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(
        picker.admin.RemoveEndpoint, pb.RemoveEndpointRequest(address=endpoint)
    )
    if answer.remaining_sources:
        what = f"stays in the fleet: it is also in {', '.join(answer.remaining_sources)}"
    elif answer.running:
        what = f"gets no new requests; {answer.running} still running"
    else:
        what = "left the fleet"
    print_answer(output, answer, f"{endpoint} {what}")


@group.command()
@talks
async def drain(
    picker: AdminClient,
    endpoints: ActiveArguments,
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline",
            metavar=METAVAR,
            parser=duration,
            show_default="no limit",
            help="The longest time to wait, such as 90s or 2m; 0 means no limit.",
        ),
    ] = 0.0,
    output: OutputOption = Format.TABLE,
) -> None:
    """Send endpoints no new requests, and wait until their running requests have ended.

    Running requests are never cut off. The endpoints stay draining afterwards, also if the deadline
    passes (exit code 6) or this command is interrupted; `endpoints activate` ends it.

    \b
    Examples:
      coxswain endpoints drain gpu-1 --deadline 2m && ssh gpu-1 systemctl restart llama
      coxswain endpoints drain gpu-1 gpu-2
    """
    from extproc.cli.screens.drain import follow_drains

    await follow_drains(picker, endpoints, deadline, output)


@group.command()
@talks
async def activate(
    picker: AdminClient, endpoints: IdleArguments, output: OutputOption = Format.TABLE
) -> None:
    """Send endpoints requests again, after `drain` or `disable`.

    \b
    Example:
      coxswain endpoints activate gpu-1
    """
    from extproc.cli.screens.endpoint_table import called
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    for endpoint in endpoints:
        answer = await picker.ask(picker.admin.Activate, pb.ActivateRequest(address=endpoint))
        sentence = f"{called(answer.endpoint)} is active"
        print_answer(output, answer, sentence, is_line=len(endpoints) > 1)


@group.command()
@talks
async def disable(
    picker: AdminClient, endpoints: ActiveArguments, output: OutputOption = Format.TABLE
) -> None:
    """Send endpoints no new requests until `activate`, and return at once.

    \b
    Example:
      coxswain endpoints disable gpu-1
    """
    from extproc.cli.screens.endpoint_table import called
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    for endpoint in endpoints:
        answer = await picker.ask(picker.admin.Disable, pb.DisableRequest(address=endpoint))
        running = answer.endpoint.leases
        rest = f"; {counted(running, 'request')} still running" if running else ""
        sentence = f"{called(answer.endpoint)} is disabled{rest}"
        print_answer(output, answer, sentence, is_line=len(endpoints) > 1)
