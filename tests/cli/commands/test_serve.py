"""Claims about extproc/cli/commands/serve.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import extproc.app.serve
from extproc.cli.root import root
from extproc.settings import Settings, SettingsError

OPEN = ("--set", "listen.grpc=0.0.0.0:0", "--set", "listen.admin=0.0.0.0:0")


def test_it_does_not_listen_beyond_loopback_unless_that_is_said() -> None:
    """Without a token or mutual TLS; it ends with 2 and says what to do."""
    ended = CliRunner().invoke(root, ["serve", *OPEN])
    assert isinstance(ended.exception, SettingsError)
    told = str(ended.exception)
    assert told.count("unprotected") == 2 and "--insecure" in told


def test_it_does_not_start_with_what_a_check_rejects(tmp_path: Path) -> None:
    """Every problem of a start is reported at once, those of a cluster too."""
    file = tmp_path / "coxswain.yaml"
    broken = {
        "admin": {"token_file": str(tmp_path / "none")},
        "fronts": 1,
        "cluster": {"name": "one", "advertise": "10.0.0.5:9004", "valkey": "redis://10.0.0.6:6379"},
    }
    file.write_text(json.dumps(broken))
    ended = CliRunner().invoke(root, ["serve", "--config", str(file)])
    assert isinstance(ended.exception, SettingsError)
    keys = [problem.key for problem in ended.exception.problems]
    assert keys == ["admin.token_file", "cluster.advertise"]


def test_what_is_said_is_in_the_settings_it_runs_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and when they are read again."""
    seen: list[Settings] = []

    async def run(settings: Settings, load: Callable[[], Settings], _: str) -> None:
        seen.extend((settings, load()))

    monkeypatch.setattr(extproc.app.serve, "serve", run)
    words = ["serve", *OPEN, "--insecure", "--endpoint", "10.0.0.5:8080"]
    ended = CliRunner().invoke(root, [*words, "--statsd-addr", "127.0.0.1:9125"])
    assert ended.exit_code == 0, ended.output
    for settings in seen:
        assert settings.listen.insecure and settings.listen.grpc == "0.0.0.0:0"
        assert settings.statsd.addr == "127.0.0.1:9125"
        assert [endpoint.address for endpoint in settings.endpoints] == ["10.0.0.5:8080"]
    assert len(seen) == 2
    assert not Settings().listen.insecure
