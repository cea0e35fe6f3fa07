"""Claims about extproc/cli/output.py: every answer can be had as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from extproc.cli.output import counted
from tests.cli.typed_command import Command
from tools.commands_page import commands_below

NO_ANSWER = {
    "coxswain up",
    "coxswain serve",
    "coxswain batch results",
    "coxswain batch run",
    "coxswain agent",
    "coxswain keeper",
    "coxswain config schema",  # is JSON always
    "coxswain config reference",  # is a page
}
"""What runs until it is stopped, or says one thing in its own format."""


def test_every_answer_can_be_json() -> None:
    """Each command has `-o`, but for those that answer nothing, or in a format of their own."""
    commands = dict(commands_below())
    assert NO_ANSWER <= commands.keys()
    for name, command in commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ({"-o", "--output"} <= options) != (name in NO_ANSWER), name


@pytest.mark.parametrize("words", [("show",), ("envoy",), ("envoy", "--snippet")])
def test_documents_are_the_same_in_json(coxswain: Command, words: tuple[str, ...]) -> None:
    """What is YAML for people is the same as JSON, without the comments."""
    assert json.loads(coxswain("config", *words, "-o", "json").out) == yaml.safe_load(
        coxswain("config", *words).out
    )


def test_mistakes_as_json(coxswain: Command, tmp_path: Path) -> None:
    """Scripts get each mistake with its place and key on stdout, and the same exit code."""
    file = tmp_path / "coxswain.yaml"
    file.write_text("queue:\n  max_request: 1\n", encoding="utf-8")
    ended = coxswain("config", "check", "--config", str(file), "-o", "json")
    assert (ended.code, ended.err) == (2, "")
    assert json.loads(ended.out)["problems"] == [
        {
            "where": f"{file}:2",
            "key": "queue.max_request",
            "message": "unknown key; did you mean queue.max_requests?",
        }
    ]
    ended = coxswain("config", "check", "-e", "10.0.0.5:1", "-o", "json")
    assert (ended.code, json.loads(ended.out)) == (0, {"problems": [], "envoy_problems": []})


def test_one_request_is_one() -> None:
    shown = [counted(many, "request") for many in (0, 1, 2)]
    assert shown == ["0 requests", "1 request", "2 requests"]
