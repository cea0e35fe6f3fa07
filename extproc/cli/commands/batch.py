"""`coxswain batch`: batches of requests that run while slots are idle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from extproc.cli.admin_client import EXIT_CODES, AdminClient, ExitCode, PickerError
from extproc.cli.durations import METAVAR, positive_duration
from extproc.cli.output import Format, OutputOption, WatchOption, print_json
from extproc.cli.reporting import LogFormatOption, connect, set_up_log
from extproc.cli.rpc_command import talks
from extproc.cli.screens.batch_client import BatchClient, answering

ABOUT: Final = """Batches of requests that run while slots are idle.

\b
Examples:
  coxswain batch submit questions.jsonl
  coxswain batch status --watch
"""

group = typer.Typer(rich_markup_mode=None, help=ABOUT)

MIB: Final = 1024 * 1024

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", envvar="COXSWAIN_URL", help="Envoy, or the batch process itself."
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        envvar="COXSWAIN_API_KEY_FILE",
        help="The file with your API key; alternatively, set COXSWAIN_API_KEY to the key.",
    ),
]
BatchArgument = Annotated[str, typer.Argument(metavar="BATCH", help="The batch's id.")]
ENVOY: Final = "http://127.0.0.1:10000"


@group.command("submit", epilog=EXIT_CODES)
@answering
async def submit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The requests, a line of JSON for each.")
    ],
    window: Annotated[
        str,
        typer.Option("--window", metavar="TIME", help="How long it may take, such as 24h or 7d."),
    ] = "24h",
    url: UrlOption = ENVOY,
    api_key_file: KeyOption = None,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """Submit a file in the format of OpenAI's Batch API, and print the id of the batch.

    Each line has a custom_id, the method POST, the url and the body of one request. All lines have
    the same url: /v1/chat/completions, /v1/completions, /v1/responses or /v1/embeddings.

    \b
    Examples:
      coxswain batch submit questions.jsonl
      coxswain batch submit questions.jsonl --window 7d --watch
    """
    from extproc.cli.screens.batch_table import show_batches

    async with BatchClient.of(url, api_key_file) as client:
        batch = await client.submit(file, window)
        if output is Format.JSON and not watch:
            print_json(batch)
        elif not watch:
            typer.echo(batch["id"])
        if batch["errors"]:
            first = batch["errors"]["data"][0]
            where = "" if first["line"] is None else f", line {first['line']}"
            raise PickerError(ExitCode.REJECTED, f"{file}{where}: {first['message']}")
        if watch:
            await show_batches(client, batch["id"], output, is_watching=True)


@group.command("status", epilog=EXIT_CODES)
@answering
async def status(
    batch: Annotated[
        str, typer.Argument(metavar="BATCH", help="The batch's id; by default all batches.")
    ] = "",
    url: UrlOption = ENVOY,
    api_key_file: KeyOption = None,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """Show batches: what is done, the rate of the last minute, and when the rest is expected.

    \b
    Examples:
      coxswain batch status
      coxswain batch status batch_0f3a9c41d2e85b67 --watch
      coxswain batch status -o json | jq '.data[].request_counts'
    """
    from extproc.cli.screens.batch_table import show_batches

    async with BatchClient.of(url, api_key_file) as client:
        await show_batches(client, batch, output, is_watching=watch)


@group.command("results", epilog=EXIT_CODES)
@answering
async def results(
    batch: BatchArgument,
    errors: Annotated[
        bool,
        typer.Option("--errors", help="The requests that failed, in place of those answered."),
    ] = False,
    url: UrlOption = ENVOY,
    api_key_file: KeyOption = None,
) -> None:
    """Print the results of a batch that has ended, a line of JSON for each request.

    They come in the order of the file that was submitted.

    \b
    Examples:
      coxswain batch results batch_0f3a9c41d2e85b67 > answers.jsonl
      coxswain batch results batch_0f3a9c41d2e85b67 --errors
    """
    import sys

    async with BatchClient.of(url, api_key_file) as client:
        found = await client.batch(batch)
        if found["status"] == "in_progress":
            raise PickerError(ExitCode.NOT_YET, f"{batch} has not ended: see `batch status`")
        file = found["error_file_id" if errors else "output_file_id"]
        if file is not None:
            await client.copy(file, sys.stdout.buffer)


@group.command("cancel", epilog=EXIT_CODES)
@answering
async def cancel(
    batch: BatchArgument,
    url: UrlOption = ENVOY,
    api_key_file: KeyOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a batch at once. Requests that were answered keep their results.

    \b
    Example:
      coxswain batch cancel batch_0f3a9c41d2e85b67
    """
    async with BatchClient.of(url, api_key_file) as client:
        found = await client.cancel(batch)
    if output is Format.JSON:
        print_json(found)
    else:
        counts = found["request_counts"]
        done = counts["completed"] + counts["failed"]
        typer.echo(f"{batch} is {found['status']}: {done} of {counts['total']} requests have ended")


@group.command("run")
@talks
async def run(
    picker: AdminClient,
    store: Annotated[
        Path,
        typer.Option(
            "--store", metavar="FILE", help="The SQLite file with the batches and their results."
        ),
    ] = Path("batches.db"),
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="Envoy, through which lines are sent.")
    ] = ENVOY,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Where to serve /v1/files and so on."),
    ] = "127.0.0.1:9006",
    objective: Annotated[
        str,
        typer.Option(
            "--objective", metavar="NAME", help="The objective of the lines, a sheddable one."
        ),
    ] = "batch",
    keys_file: Annotated[
        Path | None,
        typer.Option(
            "--keys-file",
            metavar="FILE",
            help="The picker's `clients.keys_file`: each client sees only its own batches.",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            metavar="FILE",
            help="The file with the key that is sent with lines, if the picker checks keys; "
            "clients.batches names its client.",
        ),
    ] = None,
    clients: Annotated[
        list[str] | None,
        typer.Option(
            "--client",
            metavar="NAME",
            help="A client that may use batches; repeat it for several. By default all with a key.",
        ),
    ] = None,
    keep: Annotated[
        float,
        typer.Option(
            "--keep",
            metavar=METAVAR,
            parser=positive_duration,
            show_default="30d",
            help="How long files and batches that have ended are kept, such as 30d.",
        ),
    ] = 30 * 86_400.0,
    max_file_mb: Annotated[
        int,
        typer.Option("--max-file-mb", metavar="MIB", min=1, help="The largest file of a client."),
    ] = 200,
    max_store_mb: Annotated[
        int,
        typer.Option("--max-store-mb", metavar="MIB", min=1, help="All files together."),
    ] = 16 * 1024,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen beyond loopback without --keys-file."),
    ] = False,
    log_format: LogFormatOption = "human",
) -> None:
    """Run batches: send their lines while slots are idle, and serve the API, until Ctrl-C.

    It sends lines through Envoy as requests that are never queued, and gives their slots back as
    soon as others wait. If it is killed, the lines that ran are sent again. See docs/batches.md.

    \b
    Examples:
      coxswain batch run --store /var/lib/coxswain/batches.db
      coxswain batch run --keys-file /etc/coxswain/keys --api-key-file /etc/coxswain/batch.key
    """
    from extproc.app.batches import BatchesError, BatchesPlan, run_batches
    from extproc.settings import SettingsError
    from extproc.transport.descriptors import raise_limit

    set_up_log(log_format)
    raise_limit()
    plan = BatchesPlan(
        picker=picker.address,
        store=store,
        listen=listen,
        url=url,
        objective=objective,
        token=picker.connection.token,
        token_file=picker.connection.token_file,
        api_key_file=api_key_file,
        keys_file=keys_file,
        keep_s=keep,
        max_file_bytes=max_file_mb * MIB,
        max_store_bytes=max_store_mb * MIB,
        is_insecure=insecure,
        clients=frozenset(clients or ()),
    )
    try:
        await run_batches(plan, lambda: connect(picker))
    except (BatchesError, SettingsError) as error:
        raise PickerError(ExitCode.USAGE, str(error)) from None
