"""What the commands that report to a picker share: options, their log, and the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from extproc.cli.admin_client import AdminClient, ExitCode, PickerError
from extproc.cli.durations import METAVAR, duration

if TYPE_CHECKING:
    import grpc

CHANNEL_OPTIONS: Final = (
    # Each attempt uses a new channel: gRPC's own pauses between attempts would come on top of ours.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)

DrainOption = Annotated[
    float,
    typer.Option(
        "--drain-timeout",
        metavar=METAVAR,
        parser=duration,
        show_default="30s",
        help="How long to wait at the end for running requests, such as 30s or 2m.",
    ),
]

LogFormatOption = Annotated[
    str, typer.Option("--log-format", metavar="FORMAT", help="The log format: human or json.")
]


def set_up_log(log_format: str) -> None:
    """Write the log in this format; raises `PickerError` for an unknown one."""
    from extproc.app.logs import set_up_logging
    from extproc.settings import LogSettings

    if log_format not in ("human", "json"):
        raise PickerError(ExitCode.USAGE, "--log-format: human or json")
    set_up_logging(LogSettings(format="json" if log_format == "json" else "human"))


def connect(picker: AdminClient) -> grpc.aio.Channel:
    """A channel with the current certificates; a file may be missing during its renewal. Raises
    `LinkError`, after which the caller tries again."""
    from scraper.agent.picker_stream import LinkError

    try:
        return picker.new_channel(CHANNEL_OPTIONS)
    except PickerError as error:
        raise LinkError(str(error)) from None
