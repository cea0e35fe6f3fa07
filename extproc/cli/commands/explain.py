"""`coxswain explain`: explains the decision about a request."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from extproc.cli.admin_client import AdminClient, ExitCode
from extproc.cli.output import Format, OutputOption, plain, print_json
from extproc.cli.rpc_command import talks

BODY_BYTES = 1024 * 1024


@talks
async def explain(
    picker: AdminClient,
    path: Annotated[
        str, typer.Argument(metavar="REQUEST_PATH", help="The request's path.")
    ] = "/v1/chat/completions",
    method: Annotated[
        str, typer.Option("--method", "-X", metavar="METHOD", help="The request's method.")
    ] = "POST",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME: VALUE",
            help="A header of the request; can be repeated.",
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option("--data", "-d", metavar="BODY|@FILE", help="The request's body; @- is stdin."),
    ] = "",
    client: Annotated[
        str,
        typer.Option(
            "--client",
            metavar="NAME",
            help="Whose request it is, by the name in clients.keys_file: instead of a key.",
        ),
    ] = "",
    pool: Annotated[
        str,
        typer.Option(
            "--pool",
            metavar="NAME",
            help="The pool that it is for, instead of what its headers say.",
        ),
    ] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Explain the decision about a request: its endpoint or its time in the queue, and why.

    The request is neither queued nor sent, and does not count towards its client's limits. The exit
    code is 1 if the request would be rejected.

    COST_S is the sum of FIRST_TOKEN_S, ANSWER_S and ADAPTER_S; it already includes SAVED_S, the
    time that the prompt cache saves. Costs that differ by less than a tenth count as equal.

    \b
    Examples:
      coxswain explain -d '{"model": "tiny", "messages": []}'
      coxswain explain --client web -d '{"messages": []}'
      coxswain explain -H 'x-gateway-inference-objective: chat' -d @body.json
    """
    from extproc.cli.screens.explanation import show
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(
        picker.admin.Explain,
        pb.ExplainRequest(
            method=method,
            path=path,
            headers=_headers(header or []),
            body=_body(data),
            client=client,
            pool=pool,
        ),
    )
    if output is Format.JSON:
        print_json(plain(answer))
    else:
        show(answer)
    if answer.decision == pb.ExplainResponse.DECISION_REJECTED:
        raise typer.Exit(ExitCode.REJECTED)


def _headers(lines: list[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter("write each header as 'name: value'", param_hint="--header")
        headers[name.strip().lower()] = value.strip()
    return headers


def _body(data: str) -> bytes:
    """The text itself, or the first part of the file that it names."""
    if not data.startswith("@"):
        return data.encode(errors="surrogateescape")
    if data == "@-":
        return sys.stdin.buffer.read(BODY_BYTES)
    try:
        with Path(data[1:]).open("rb") as file:
            return file.read(BODY_BYTES)
    except OSError as error:
        raise typer.BadParameter(
            f"{data[1:]}: {(error.strerror or 'unreadable').lower()}", param_hint="--data"
        ) from None
