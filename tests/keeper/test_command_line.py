"""Claims about extproc/keeper/command_line.py: a text becomes the arguments it means."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from extproc.keeper.command_line import split_command
from extproc.keeper.models_file import parse_models


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("a  b\tc\n", ["a", "b", "c"]),
        ("a '' \"\"", ["a", "", ""]),
        ("a'b c'\"d e\"f", ["ab cd ef"]),
        (r"a\ b 'c\d' \"e\"", ["a b", "c\\d", '"e"']),
        (r'"\$a \`b \"c \\d \e"', ['$a `b "c \\d \\e']),
        ("a#b #c", ["a#b", "#c"]),
        ("a \\\n  b \\\n  c", ["a", "b", "c"]),
        ("# a\nb\n  # c \\\nd", ["b", "d"]),
        ("a '\n'", ["a", "\n"]),
    ],
)
def test_arguments(text: str, words: list[str]) -> None:
    assert split_command(text) == words


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "don't"])
def test_a_quotation_without_an_end_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="has no end"):
        split_command(text)


def test_a_shell_reads_the_same() -> None:
    """Where nothing is expanded, and no line ends in a backslash."""
    text = r"""one 'two  2' "thr\"ee" fo\ ur "f\$ive" 'si"x' a"b"'c' k#1"""
    shell = shutil.which("sh")
    assert shell is not None
    printed = subprocess.run(
        [shell, "-c", f"printf '%s\\n' {text}"], capture_output=True, text=True, check=True
    )
    assert split_command(text) == printed.stdout.splitlines()


def test_the_keepers_file_reads_commands_so() -> None:
    text = (
        "memory_mb: 9\nmodels:\n  a:\n    memory_mb: 5\n    cmd: |\n"
        "      # the first\n      llama-server \\\n        --api-key k#1 \\\n        -ngl 99 \\\n"
    )
    found = parse_models(text.encode(), "models.yaml").models["a"].cmd
    assert found == ("llama-server", "--api-key", "k#1", "-ngl", "99")
