"""Claims about extproc/cli/reporting.py: what the agent and the keeper share."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import pytest

from extproc.cli.admin_client import AdminClient, Connection, ExitCode, PickerError
from extproc.cli.commands.agent import agent
from extproc.cli.commands.keeper import keeper
from extproc.cli.reporting import connect, set_up_log
from scraper.agent.picker_stream import LinkError


def test_both_commands_have_the_same_options() -> None:
    """One declaration: the same help, the same defaults."""
    for name in ("drain_timeout", "log_format"):
        one, other = (signature(command).parameters[name] for command in (agent, keeper))
        assert (one.annotation, one.default) == (other.annotation, other.default)


def test_an_unknown_log_format_is_a_mistake_of_the_command_line() -> None:
    with pytest.raises(PickerError, match="--log-format: human or json") as caught:
        set_up_log("xml")
    assert caught.value.exit is ExitCode.USAGE


async def test_a_certificate_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    """It may be missing while it is renewed."""
    picker = AdminClient(
        Connection(address="127.0.0.1:9003", is_tls=True, ca=tmp_path / "missing.pem")
    )
    with pytest.raises(LinkError):
        connect(picker)
