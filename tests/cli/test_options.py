"""Claims about extproc/cli/options.py: what the shared options make of the settings."""

from __future__ import annotations

import pytest
import typer

from extproc.cli.options import servers_of, settings_from
from extproc.settings import SettingsError
from tests.cli.typed_command import Command


def test_servers_stand_behind_commas_blanks_and_further_options() -> None:
    assert servers_of(["a:1,b:2", "c:3 d:4", ", e:5,"]) == ["a:1", "b:2", "c:3", "d:4", "e:5"]
    assert servers_of(None) == servers_of([]) == []
    with pytest.raises(typer.BadParameter, match="it has no address"):
        servers_of([" , "])


def test_assignments_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value may hold a further `=`, the key blanks around it; the last one of a key counts."""
    monkeypatch.delenv("COXSWAIN_CONFIG", raising=False)
    settings = settings_from(None, ["a:1"], ["queue.timeout_s=3", " queue.timeout_s =4"])
    assert settings.queue.timeout_s == 4 and settings.endpoints[0].address == "a:1"
    settings = settings_from(None, None, ['models={"a=b": "tiny"}'])
    assert settings.models == {"a=b": {"tiny": 1.0}}
    with pytest.raises(SettingsError, match=r"did you mean queue\.timeout_s"):
        settings_from(None, None, ["queue.timeout=3"])


@pytest.mark.parametrize("assignment", ["queue.timeout_s", "=3", ""])
def test_what_is_no_assignment(coxswain: Command, assignment: str) -> None:
    """The message names the option and shows one."""
    ended = coxswain("config", "check", "--set", assignment)
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "Error: Invalid value for --set: write KEY=VALUE, for example queue.timeout_s=30"
    )
