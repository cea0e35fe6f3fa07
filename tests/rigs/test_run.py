"""The command: a run that does not hold makes it fail, and says how to run it again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rigs.chaos import __main__ as run
from rigs.chaos.accounting import Finding, Verdict
from rigs.chaos.attack import Outcome
from rigs.chaos.script import Script


def outcomes(monkeypatch: pytest.MonkeyPatch, by_seed: dict[int, Any]) -> None:
    """What the attack of each seed comes to; an exception is raised."""

    async def attack(folder: Path, script: Script, say: object) -> Outcome:
        what = by_seed[script.seed]
        if isinstance(what, Exception):
            raise what
        findings = [Finding(rule=rule, id="chaos-1", text="seen") for rule in what]
        verdict = Verdict(findings=findings, counts=Counter({"served": 5}))
        return Outcome(verdict=verdict, done=Counter({"kill Envoy": 1}))

    monkeypatch.setattr(run, "attack", attack)


def test_it_is_zero_when_everything_held(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes(monkeypatch, {4: [], 5: []})
    assert run.main(["--seed", "4", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    assert "seed 4: gateway" in printed and "everything held" in printed
    assert "| served | 10 |" in printed and "| kill Envoy | 2 |" in printed


def test_it_is_one_when_anything_did_not_hold_or_come_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes(monkeypatch, {1: ["lost"], 2: TimeoutError(), 3: []})
    assert run.main(["--seeds", "3"]) == 1
    printed = capsys.readouterr().out
    assert "BROKEN by seed 1, 2\n" in printed and "| lost | 1 |" in printed


def test_the_windows_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Faults with the same excuse share a row."""
    assert run.main(["--windows"]) == 0
    shown = capsys.readouterr().out
    assert "| kill the picker; stop the picker (SIGSTOP); restart the picker" in shown
    assert shown.count("the end of a killed picker's log") == 1
