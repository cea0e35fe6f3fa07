"""Claims about extproc/cli/rpc_command.py: what all commands that call a picker share."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from extproc.cli.admin_client import EXIT_CODES, AdminClient, Connection, ExitCode, PickerError
from extproc.cli.rpc_command import CONNECTION_OPTIONS, connection_of, talks

seen: list[tuple[Connection, int]] = []


@talks
async def row(picker: AdminClient, strokes: int = 1) -> None:
    """Row."""
    seen.append((picker.connection, strokes))
    if strokes > 9:
        raise PickerError(ExitCode.NOT_YET, "too many strokes")


@pytest.fixture(autouse=True)
def _nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen.clear()
    for name in ("PICKER", "TOKEN", "TOKEN_FILE", "CA", "CERT", "KEY"):
        monkeypatch.delenv(f"COXSWAIN_{name}", raising=False)


def run(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(row)
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


def test_its_own_options_and_those_of_the_connection() -> None:
    """Both reach the command; without any it is the picker of this machine."""
    assert run("--strokes", "3", "--picker", "10.0.0.1:9003", "--timeout", "2.5")[0] == 0
    assert run()[0] == 0
    (first, strokes), (second, _) = seen
    assert (first.address, first.timeout_s, strokes) == ("10.0.0.1:9003", 2.5, 3)
    assert (second.address, second.is_tls, second.token) == ("127.0.0.1:9003", False, "")


def test_the_environment_says_where_once_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An option on the line counts more, also a token's file than a token."""
    file = tmp_path / "token"
    file.write_text("from-file\n")
    monkeypatch.setenv("COXSWAIN_PICKER", "127.0.0.2:9003")
    monkeypatch.setenv("COXSWAIN_TOKEN", " from-environment ")
    run()
    run("--picker", "127.0.0.3:9003", "--token-file", str(file))
    found = [(connection.address, connection.token) for connection, _ in seen]
    assert found == [
        ("127.0.0.2:9003", "from-environment"),
        ("127.0.0.3:9003", "from-file"),
    ]


@pytest.mark.parametrize(
    ("place", "tls", "is_warned"),
    [
        ("10.0.0.1:9003", (), True),
        ("picker.lan:9003", (), True),
        ("10.0.0.1:9003", ("--tls",), False),
        ("127.0.0.1:9003", (), False),
        ("[::1]:9003", (), False),
        ("localhost:9003", (), False),
    ],
)
def test_a_token_that_others_can_read_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, place: str, tls: tuple[str, ...], is_warned: bool
) -> None:
    """Where it leaves the machine in the clear; the token itself is not shown."""
    monkeypatch.setenv("COXSWAIN_TOKEN", "s3cret")
    code, _, err = run("--picker", place, *tls)
    assert code == 0 and ("unencrypted" in err) == is_warned and "s3cret" not in err


def test_half_a_certificate_is_a_wrong_line(tmp_path: Path) -> None:
    code, _, err = run("--cert", str(tmp_path / "cert.pem"))
    assert code == ExitCode.USAGE and "--cert and --key together" in err
    assert not seen


def test_a_failure_is_one_line_and_its_code() -> None:
    assert run("--strokes", "10") == (ExitCode.NOT_YET, "", "coxswain: too many strokes\n")


def test_the_help_reports_how_it_ends() -> None:
    """All the codes that there are."""
    told = " ".join(run("--help")[1].split())
    assert " ".join(EXIT_CODES.split()) in told
    for code in ExitCode:
        assert f"{code.value} " in EXIT_CODES, code


def test_completion_reaches_the_same_picker() -> None:
    """With what was typed so far; the rest is as by default."""
    found = connection_of({"picker": "10.0.0.1:9003", "tls": True}, 0.5)
    assert (found.address, found.is_tls, found.timeout_s) == ("10.0.0.1:9003", True, 0.5)
    assert "timeout" in CONNECTION_OPTIONS
