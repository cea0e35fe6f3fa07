"""Claims about extproc/cli/commands/serve.py."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import extproc.app.serve
import extproc.cli.process
import extproc.processes.core
import extproc.processes.front
import extproc.processes.supervisor
from extproc.cli.root import root
from extproc.processes.child import Identity
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


def test_what_is_said_is_in_the_settings_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fronts each process reads the settings itself, and the core reads them again."""
    commands: list[Sequence[str]] = []
    seen: list[Settings] = []

    async def supervise(_: Settings, process: Sequence[str]) -> None:
        commands.append(process)

    async def run_front(settings: Settings, _: Identity) -> None:
        seen.append(settings)

    async def run_core(
        settings: Settings, load: Callable[[], Settings], _: str, __: Identity
    ) -> int:
        seen.extend((settings, load()))
        return 0

    monkeypatch.setattr(extproc.processes.supervisor, "supervise", supervise)
    monkeypatch.setattr(extproc.processes.front, "run_front", run_front)
    monkeypatch.setattr(extproc.processes.core, "run_core", run_core)
    monkeypatch.setattr(extproc.cli.process, "tie_to_supervisor", lambda _: None)
    words = ["serve", *OPEN, "--insecure", "--endpoint", "10.0.0.5:8080", "--set", "fronts=1"]
    ended = CliRunner().invoke(root, [*words, "--statsd-addr", "127.0.0.1:9125"])
    assert ended.exit_code == 0, ended.output
    [[*_, options]] = commands
    for role in ("front", "core"):
        assert extproc.cli.process.main([options, str(os.getppid()), role, "one", "0"]) == 0
    assert len(seen) == 3
    for settings in seen:
        assert settings.listen.insecure and settings.listen.grpc == "0.0.0.0:0"
        assert settings.statsd.addr == "127.0.0.1:9125" and settings.fronts == 1
        assert [endpoint.address for endpoint in settings.endpoints] == ["10.0.0.5:8080"]
