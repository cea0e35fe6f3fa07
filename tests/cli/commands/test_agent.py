"""Claims about extproc/cli/commands/agent.py: what it rejects before it reports anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.typed_command import Command


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--log-format", "yaml"], "--log-format: human or json"),
        (["--api-key-env", "NO_SUCH_KEY"], "--api-key-env: NO_SUCH_KEY is empty or not set"),
        (["--slots", "0"], "--slots"),
        (["--advertise", "nonsense"], "--advertise"),
        (["--llama", "ftp://127.0.0.1"], "--llama"),
        (["--fleet", "region"], "--fleet region: write HOST:PORT"),
        (["--fleet", "127.0.0.1:9003"], "--advertise: with --fleet write"),
        (["--fleet", "127.0.0.1:9003", "--slots", "3"], "--slots and --may-sleep"),
        (["--fleet", "127.0.0.1:9003", "--fleet-cert", "c.pem"], "--fleet-key together"),
        (["--fleet-server-name", "region"], "require --fleet HOST:PORT"),
        (["--fleet-ahead", "4"], "require --fleet HOST:PORT"),
        (["--fleet", "127.0.0.1:9003", "--fleet-ahead", "-1"], "--fleet-ahead"),
    ],
)
def test_options_that_cannot_be(coxswain: Command, option: list[str], told: str) -> None:
    """2, and the line names the option; no picker is asked for any of it."""
    ended = coxswain("agent", "--picker", "127.0.0.1:1", *option)
    assert ended.code == 2 and told in ended.err, ended.err
    assert "Traceback" not in ended.err


def test_a_key_is_not_offered_over_an_open_network(coxswain: Command, tmp_path: Path) -> None:
    """Only over TLS, or to a picker on this machine."""
    key = tmp_path / "key"
    key.write_text("k", encoding="utf-8")
    offered = ("--api-key-file", str(key), "--inject-key")
    ended = coxswain(
        "agent", "--picker", "192.0.2.1:9003", "--advertise", "192.0.2.2:8080", *offered
    )
    assert ended.code == 2 and "unencrypted; use --ca or --tls" in ended.err
