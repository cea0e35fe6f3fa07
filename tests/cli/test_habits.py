"""What people who know kubectl expect of the command line holds for each command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from extproc.cli.root import root
from extproc.usage.counts import UsageCounts, UsageKey
from extproc.usage.store import UsageRow
from tests.cli.typed_command import Command, Run, parsed
from tests.fakes.picker import running_picker

A, B = "10.0.0.1:8080", "10.0.0.2:8080"
RAW = re.compile(r"<(?!\w+\|)[^>]*>|\b(TEXT|INTEGER|FLOAT|PATH|BOOLEAN)\b")
"""The words of click's types, which say nothing to people; `<a|b>` lists the choices."""


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """The arguments and options of a command and of those below it, as its help names them, and
    its usage, by command."""
    context = command.make_context(name, [], resilient_parsing=True)
    records = [param.get_help_record(context) for param in command.params]
    usage = " ".join(command.collect_usage_pieces(context))
    yield name, "\n".join([usage, *(record[0] for record in records if record is not None)])
    for part, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{name} {part}")


def test_help_shows_no_raw_types() -> None:
    """Neither for options nor for arguments; and usage lines have kubectl's brackets."""
    found = {name: RAW.findall(text) for name, text in helps(typer.main.get_command(root), "cox")}
    assert len(found) > 20
    assert not {name: raw for name, raw in found.items() if raw}
    usages = dict(helps(typer.main.get_command(root), "cox"))
    assert usages["cox endpoints drain"].startswith("[OPTIONS] ENDPOINT...\n")
    assert usages["cox explain"].startswith("[OPTIONS] [REQUEST_PATH]\n")
    assert not any("{" in usage for usage in usages.values())


@pytest.mark.parametrize(
    ("picker", "example"),
    [
        ("10.0.0.1", "10.0.0.1:9003"),
        ("picker.lan", "picker.lan:9003"),
        ("::1", "[::1]:9003"),
        ("[::1]", "[::1]:9003"),
    ],
)
def test_a_picker_without_a_port(coxswain: Command, picker: str, example: str) -> None:
    ended = coxswain("endpoints", "--picker", picker)
    assert ended.code == 2
    assert ended.err == f"coxswain: --picker {picker}: the port is missing; write {example}\n"


async def test_several_endpoints_at_once(run: Run) -> None:
    """Drained, activated, disabled; a mistake in one name does not keep the others waiting."""
    async with running_picker() as picker:
        picker.add_ready(A, name="one")
        picker.add_ready(B, name="two")
        drained = await run("endpoints", "drain", "one", "two", picker=picker)
        assert drained.exit_code == 0
        assert sorted(drained.stdout.splitlines()) == [
            "one is drained: 0 requests ended",
            "two is drained: 0 requests ended",
        ]
        active = await run("endpoints", "activate", "one", "two", picker=picker)
        assert active.stdout == f"one ({A}) is active\ntwo ({B}) is active\n"
        disabled = await run("endpoints", "disable", "one", "two", picker=picker)
        assert disabled.stdout == f"one ({A}) is disabled\ntwo ({B}) is disabled\n"
        mistyped = await run("endpoints", "drain", "one", "tow", picker=picker)
        assert mistyped.exit_code == 4 and "one is drained" in mistyped.stdout


async def test_durations(run: Run) -> None:
    """With units, and for the deadline of a drain nothing means no limit."""
    async with running_picker() as picker:
        picker.add_ready(A)
        call = await picker.ask("r1")
        late = await run("endpoints", "drain", A, "--deadline", "50ms", picker=picker)
        assert late.exit_code == 6
        wrong = await run("endpoints", "drain", A, "--deadline", "soon", picker=picker)
        assert wrong.exit_code == 2 and "write 90s, 2m or 1h30m" in wrong.stderr
        call.cancel()


async def test_status_and_version(run: Run) -> None:
    """For eyes in a few lines, for scripts as JSON."""
    async with running_picker() as picker:
        picker.add_ready(A, slots=2)
        picker.problems.append("fleet.yaml cannot be read")
        call = await picker.ask("r1")
        shown = await run("status", picker=picker)
        lines = shown.stdout.splitlines()
        assert lines[0].startswith("Picker     1.2.3, up ") and lines[0].endswith(", ready")
        assert lines[1:] == [
            "Endpoints  1 ready",
            "Slots      2: 1 leased, 0 foreign, 1 idle, 0 unusable",
            "Running    1",
            "Queued     0 (at most 10)",
            "Envoys     1",
            "! fleet.yaml cannot be read",
        ]
        assert parsed(await run("status", "-o", "json", picker=picker))["is_ready"] is True
        assert (await run("version", picker=picker)).stdout.endswith("picker  1.2.3\n")
        versions = parsed(await run("version", "-o", "json", picker=picker))
        assert versions["picker"] == "1.2.3" and versions["command"]
        call.cancel()


async def test_every_list_has_the_same_shape(run: Run) -> None:
    """An object with the items by their name, and how many there are."""

    async def usage(*_: object) -> list[UsageRow]:
        return [UsageRow(UsageKey(client, "", "m"), UsageCounts()) for client in "abc"]

    async with running_picker(read_usage=usage) as picker:
        picker.add_ready(A)
        lists = {
            "endpoints": ("endpoints", 1),
            "queue": ("requests", 0),
            "requests": ("requests", 0),
            "models": ("models", 0),
            "scale": ("models", 0),
            "members": ("members", 0),
            "usage": ("usage", 3),
        }
        for command, (name, total) in lists.items():
            answer = parsed(await run(command, "-o", "json", picker=picker))
            assert list(answer)[:2] == [name, "total"], command
            assert (len(answer[name]), answer["total"]) == (total, total), command
        cut = parsed(await run("usage", "-n", "1", "-o", "json", picker=picker))
        assert (len(cut["usage"]), cut["total"]) == (1, 3)


async def test_options_of_the_connection_may_stand_before_the_command(run: Run) -> None:
    """As kubectl's; the one behind the command counts more. Who asks no picker refuses them."""
    async with running_picker() as picker:
        port = f"127.0.0.1:{picker.port}"
        for words in (("queue",), ("endpoints", "list"), ("config", "live")):
            assert (await run("--picker", port, *words)).exit_code == 0, words
            behind = await run("--picker", "127.0.0.1:1", *words, "--picker", port)
            assert behind.exit_code == 0, words
            assert (await run("--picker", "127.0.0.1:1", *words)).exit_code == 3, words
    for words in (("keys", "list"), ("serve",)):
        refused = await run("--picker", "127.0.0.1:1", "--tls", *words)
        assert refused.exit_code == 2 and "does not take --picker, --tls" in refused.stderr
