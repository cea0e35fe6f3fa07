"""`coxswain agent`: the scraper beside a server, for servers that the picker cannot reach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from extproc.cli.admin_client import AdminClient, Connection, ExitCode, PickerError
from extproc.cli.reporting import DrainOption, LogFormatOption, connect, set_up_log
from extproc.cli.rpc_command import talks
from extproc.core.address import is_loopback

if TYPE_CHECKING:
    from extproc.app.agent import FleetPlan

MAX_AHEAD: Final = 10_000


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
            help="Whether it was started with --sleep-idle-seconds. By default Coxswain finds "
            "out; a server whose idle time is longer than 15 minutes then stays awake.",
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
            help="Let Envoy send the server its API key, so that clients need none. The agent "
            "sends it to the picker, only over TLS or on the same machine.",
        ),
    ] = False,
    server_ca: Annotated[
        Path | None,
        typer.Option(
            "--server-ca",
            metavar="FILE",
            help="For https: the CA file for the server's certificate, PEM, also for Envoy; by"
            " default the system's CAs.",
        ),
    ] = None,
    certificate_name: Annotated[
        str,
        typer.Option(
            "--certificate-name",
            metavar="NAME",
            help="For https: the name in the server's certificate; by default the host in "
            "--llama, or the advertised IP address.",
        ),
    ] = "",
    fleet: Annotated[
        str,
        typer.Option(
            "--fleet",
            metavar="HOST:PORT",
            help="Report a whole fleet: the admin port of its picker. --advertise is then the "
            "address of its Envoy, with the port.",
        ),
    ] = "",
    fleet_token_file: Annotated[
        Path | None,
        typer.Option(
            "--fleet-token-file",
            metavar="FILE",
            help="The file with the operators' token of that picker; alternatively, set "
            "COXSWAIN_FLEET_TOKEN to the token.",
        ),
    ] = None,
    fleet_ca: Annotated[
        Path | None,
        typer.Option(
            "--fleet-ca", metavar="FILE", help="Use TLS with the CA file (PEM) for that picker."
        ),
    ] = None,
    fleet_cert: Annotated[
        Path | None,
        typer.Option(
            "--fleet-cert", metavar="FILE", help="The client certificate for that picker (mTLS)."
        ),
    ] = None,
    fleet_key: Annotated[
        Path | None,
        typer.Option("--fleet-key", metavar="FILE", help="The private key of that certificate."),
    ] = None,
    fleet_server_name: Annotated[
        str,
        typer.Option(
            "--fleet-server-name", metavar="NAME", help="The name in that picker's certificate."
        ),
    ] = "",
    fleet_ahead: Annotated[
        int,
        typer.Option(
            "--fleet-ahead",
            metavar="N",
            min=0,
            max=MAX_AHEAD,
            help="Let N requests of the parent wait in the fleet's queue, for fleets far away "
            "(docs/cluster.md).",
        ),
    ] = 0,
    drain_timeout: DrainOption = 30.0,
    log_format: LogFormatOption = "human",
) -> None:
    """Run beside a llama-server and report it to the picker, until Ctrl-C or SIGTERM.

    The agent registers the endpoint when the server answers. At the end the endpoint gets no new
    requests, and the agent exits when the running ones have ended.

    With --fleet it reports a whole fleet as one endpoint to a parent picker: see docs/cluster.md.

    \b
    Examples:
      coxswain agent --picker picker:9003 --llama http://127.0.0.1:8080 --advertise auto
      coxswain agent --picker picker:9003 --advertise 10.0.0.5:8080 --name gpu-1
      coxswain agent --picker picker:9003 --llama https://gpu-1.lan:8080 --server-ca lan.pem
      coxswain agent --picker parent:9003 --fleet 127.0.0.1:9003 --advertise 10.0.0.5:10001
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
        fleet=_fleet_plan(
            Connection(
                address=fleet,
                token=os.environ.get("COXSWAIN_FLEET_TOKEN", "").strip(),
                token_file=fleet_token_file,
                is_tls=fleet_ca is not None or fleet_cert is not None,
                ca=fleet_ca,
                cert=fleet_cert,
                key=fleet_key,
                server_name=fleet_server_name,
            ),
            fleet_ahead,
        ),
    )
    if plan.fleet is not None and (slots is not None or may_sleep is not None):
        raise PickerError(ExitCode.USAGE, "--fleet: --slots and --may-sleep are for one server")
    try:
        await run_agent(plan, lambda: connect(picker))
    except AgentError as error:
        raise PickerError(ExitCode.USAGE, str(error)) from None


def _fleet_plan(fleet: Connection, ahead: int) -> FleetPlan | None:
    """How to reach the picker of the reported fleet; None for one server. Raises `PickerError`."""
    from extproc.app.agent import FleetPlan

    if not fleet.address:
        if any((fleet.token_file, fleet.ca, fleet.cert, fleet.key, fleet.server_name, ahead)):
            raise PickerError(ExitCode.USAGE, "the options --fleet-... require --fleet HOST:PORT")
        return None
    host, _, port = fleet.address.rpartition(":")
    if not (host and port.isdigit()):
        raise PickerError(
            ExitCode.USAGE, f"--fleet {fleet.address}: write HOST:PORT, for example 127.0.0.1:9003"
        )
    if (fleet.cert is None) != (fleet.key is None):
        raise PickerError(ExitCode.USAGE, "give --fleet-cert and --fleet-key together")
    client = AdminClient(fleet)
    return FleetPlan(
        address=fleet.address,
        connect=lambda: connect(client),
        ahead=ahead,
        token=fleet.token,
        token_file=fleet.token_file,
    )
