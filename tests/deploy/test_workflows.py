"""The workflows call what exists, and pin what others publish."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
import yaml

from tests.deploy.stack_files import ROOT

FOLDER: Final = ROOT / ".github/workflows"
TEXTS: Final = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.yml")}
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")


def _steps(text: str) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(text)["jobs"].values()
    return [job if "uses" in job else step for job in jobs for step in job.get("steps", [job])]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_actions_are_pinned(text: str) -> None:
    """Each action is named by a full commit hash with its release behind it, or is our own."""
    for line in re.findall(r"uses: (.+)", text):
        assert re.fullmatch(r"\./\.github/\S+|[\w./-]+@[0-9a-f]{40} # v[\d.]+", line), line


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_make_targets_exist(text: str) -> None:
    """What a workflow makes is a target of the Makefile."""
    commands = [step.get("run", "") for step in _steps(text)]
    commands += re.findall(r"command: \[(.+)\]", text)
    for target in re.findall(r"\bmake ([\w-]+)", "\n".join(commands)):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_cache_keys_follow_files(text: str) -> None:
    """A cache is renewed when the files change that its key names, so these must exist."""
    for pattern in re.findall(r"hashFiles\('([^']+)'\)", text):
        assert list(ROOT.glob(pattern)), pattern
