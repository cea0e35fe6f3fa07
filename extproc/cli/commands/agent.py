"""`coxswain agent`: the scraper beside a server, for servers that the picker cannot reach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from extproc.cli.admin_client import AdminClient, PickerError
from extproc.cli.exit_codes import ExitCode
from extproc.cli.reporting import DrainOption, LogFormatOption, connect, set_up_log
from extproc.cli.rpc_command import is_loopback, talks


def register(root: typer.Typer) -> None:
    """Add `coxswain agent` to the root command."""
    root.command("agent")(agent)


@talks
async def agent(
    picker: AdminClient,
    llama: Annotated[
        str,
        typer.Option(
            "--llama", metavar="URL", help="The URL of the llama-server, as the agent reaches it."
        ),
    ] = "http://127.0.0.1:8080",
    advertise: Annotated[
        str,
        typer.Option(
            "--advertise",
            metavar="IP:PORT",
            help="The address at which Envoy reaches it; `auto` uses the address on the route "
            "to the picker, `aws` that from EC2's metadata service. Both accept a port: "
            "auto:8080. Envoy uses TLS if --llama or this has https://, as in "
            "https://10.0.0.5:8080.",
        ),
    ] = "auto",
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The name of the endpoint.")
    ] = "",
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots",
            metavar="N",
            min=1,
            max=65_536,
            help="The number of slots, for a server that does not report it.",
        ),
    ] = None,
    may_sleep: Annotated[
        bool | None,
        typer.Option(
            "--may-sleep/--stays-awake",
            help="Whether it was started with --sleep-idle-seconds. If not set, Coxswain "
            "detects it, and a server whose idle time is longer than 15 minutes stays awake.",
        ),
    ] = None,
    api_key_env: Annotated[
        str,
        typer.Option(
            "--api-key-env",
            metavar="NAME",
            help="The environment variable with the server's API key.",
        ),
    ] = "",
    api_key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", metavar="FILE", help="The file with the server's API key."),
    ] = None,
    inject_key: Annotated[
        bool,
        typer.Option(
            "--inject-key",
            help="Let Envoy send the server its API key, so that clients need no key of the "
            "server. The agent sends the key to the picker, only over TLS or on the same "
            "machine.",
        ),
    ] = False,
    server_ca: Annotated[
        Path | None,
        typer.Option(
            "--server-ca",
            metavar="FILE",
            help="For https: the CA file for the server's certificate, PEM, here and for Envoy; "
            "by default the system's CAs.",
        ),
    ] = None,
    certificate_name: Annotated[
        str,
        typer.Option(
            "--certificate-name",
            metavar="NAME",
            help="For https: the name in the server's certificate; by default the host in "
            "--llama, or the advertised IP address if that is not a name.",
        ),
    ] = "",
    drain_timeout: DrainOption = 30.0,
    log_format: LogFormatOption = "human",
) -> None:
    """Run beside a llama-server and report it to the picker, until Ctrl-C or SIGTERM.

    The agent registers the endpoint when the server answers. At the end it deregisters: the
    endpoint gets no new requests, and the agent exits when the running ones have ended. The picker
    never connects to the server itself.

    \b
    Examples:
      coxswain agent --picker picker:9003 --llama http://127.0.0.1:8080 --advertise auto
      coxswain agent --picker picker:9003 --advertise 10.0.0.5:8080 --name gpu-1
      coxswain agent --picker picker:9003 --llama https://gpu-1.lan:8080 --server-ca lan.pem
    """
    from extproc.app.agent import AgentError, AgentPlan, run_agent

    set_up_log(log_format)
    key = os.environ.get(api_key_env, "").strip() if api_key_env else ""
    if api_key_env and not key:
        raise PickerError(ExitCode.USAGE, f"--api-key-env: {api_key_env} is empty or not set")
    connection = picker.connection
    plan = AgentPlan(
        picker=picker.address,
        llama=llama,
        advertise=advertise,
        name=name,
        slots=slots,
        may_sleep=may_sleep,
        api_key=key or None,
        api_key_file=api_key_file,
        inject_key=inject_key,
        is_private=connection.is_tls or is_loopback(connection.address),
        token=connection.token,
        token_file=connection.token_file,
        drain_timeout_s=drain_timeout,
        ca_file=server_ca,
        server_name=certificate_name,
    )
    try:
        await run_agent(plan, lambda: connect(picker))
    except AgentError as error:
        raise PickerError(ExitCode.USAGE, str(error)) from None
