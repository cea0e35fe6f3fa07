"""Claims about extproc/cli/commands/endpoints.py, against a real picker over gRPC."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from extproc.cli.output import print_json
from extproc.cli.screens import endpoint_watch
from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker, until

A, B = "10.0.0.1:8080", "10.0.0.2:8080"


async def test_endpoints(run: Run) -> None:
    """Nothing, then a table with the state and the sum, then the same as JSON."""
    async with running_picker() as picker:
        empty = await run("endpoints", picker=picker)
        assert empty.exit_code == 0 and "no endpoints yet" in empty.stdout
        picker.add_ready(A, slots=2, name="gpu-1")
        picker.add_ready(B, slots=3)
        table = await run("endpoints", picker=picker)
        assert "gpu-1 (10.0.0.1:8080)" in table.stdout and "2 endpoints" in table.stdout
        picker.problems.append("fleet.yaml cannot be read: no such file")
        table = await run("endpoints", picker=picker)
        assert table.stdout.rstrip().endswith("fleet.yaml cannot be read: no such file")
        answers = [
            parsed(await run("endpoints", *words, "-o", "json", picker=picker))
            for words in ((), ("list",))
        ]
        assert [answer["total"] for answer in answers] == [2, 2]
        for answer in answers:
            assert [one["address"] for one in answer["endpoints"]] == [A, B]
        listed = answers[1]["endpoints"]
        assert [(each["address"], each["health"], each["slots"]["idle"]) for each in listed] == [
            (A, "ready", 2),
            (B, "ready", 3),
        ]


async def test_the_life_of_an_endpoint(run: Run) -> None:
    """Added, disabled, activated, drained, removed."""
    async with running_picker() as picker:
        assert (await run("endpoints", "add", A, "--name", "one", picker=picker)).exit_code == 0
        picker.observe(A, slots=2)
        assert "is disabled" in (await run("endpoints", "disable", "one", picker=picker)).stdout
        shown = parsed(await run("endpoints", "activate", "one", "-o", "json", picker=picker))
        assert shown["endpoint"]["intent"] == "active"
        drained = await run("endpoints", "drain", "one", picker=picker)
        assert drained.output == "one is drained: 0 requests ended\n", "one line for scripts"
        assert "left the fleet" in (await run("endpoints", "remove", A, picker=picker)).stdout
        gone = await run("endpoints", "remove", A, picker=picker)
        assert gone.exit_code == 4 and "no endpoint" in gone.stderr


async def test_an_endpoint_behind_tls_with_a_key(run: Run) -> None:
    """The command names the files; no option takes the key itself."""
    async with running_picker() as picker:
        options = ("--server-ca", "/ca.pem", "--certificate-name", "gpu.example", "--inject-key")
        key = ("--api-key-file", "/keys/gpu")
        done = await run("endpoints", "add", f"https://{A}", *options, *key, picker=picker)
        assert done.exit_code == 0, done.output
        (arrival,) = picker.added.arrivals.values()
        assert (arrival.is_tls, arrival.ca_file, arrival.api_key_file) == (
            True,
            "/ca.pem",
            "/keys/gpu",
        )
        assert (arrival.server_name, arrival.inject_key) == ("gpu.example", True)
        assert arrival.may_sleep is None
        done = await run("endpoints", "add", B, "--may-sleep", picker=picker)
        assert done.exit_code == 0 and len(picker.added.arrivals) == 2, done.output
        assert {each.may_sleep for each in picker.added.arrivals.values()} == {None, True}
        rejected = await run("endpoints", "add", B, "--api-key", "sk-plain", picker=picker)
        assert rejected.exit_code == 2


async def test_drain_of_a_busy_endpoint(run: Run) -> None:
    """Its deadline passes with 6 while a request runs; without one it waits for the end."""
    async with running_picker() as picker:
        picker.add_ready(A)
        call = await picker.ask("r1")
        late = await run("endpoints", "drain", A, "--deadline", "0.05", picker=picker)
        assert late.exit_code == 6 and "stays draining" in late.stderr
        draining = asyncio.create_task(run("endpoints", "drain", A, "-o", "json", picker=picker))
        await until(lambda: len(asyncio.all_tasks()) > 1)
        call.cancel()
        await until(lambda: not len(picker.registry))
        picker.observe(A)
        lines = (await draining).stdout.splitlines()
        assert json.loads(lines[-1])["state"] == "drained"


async def test_watches_print_a_line_for_each_change(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `-o json --watch`, until the picker goes away (3)."""
    printed: list[Any] = []

    def note(line: Any, *, is_line: bool) -> None:
        print_json(line, is_line=is_line)
        printed.append(line)

    monkeypatch.setattr(endpoint_watch, "print_json", note)
    async with running_picker() as picker:
        picker.add_ready(A)
        watching = asyncio.create_task(run("endpoints", "--watch", "-o", "json", picker=picker))
        await until(lambda: len(printed) == 1)
        picker.observe(A, slots=5)
        await until(lambda: len(printed) == 2)
    result = await watching
    assert result.exit_code == 3
    first, *rest = map(json.loads, result.stdout.splitlines())
    assert first["is_snapshot_complete"] and first["changed"][0]["slots"]["total"] == 1
    assert rest[-1]["changed"][0]["slots"]["total"] == 5


async def test_options_of_the_group_reach_its_commands(run: Run) -> None:
    """`coxswain endpoints --picker X add Y` talks to X."""
    async with running_picker() as picker:
        where = f"127.0.0.1:{picker.port}"
        assert (await run("endpoints", "--picker", where, "add", A)).exit_code == 0
        assert len(picker.dispatcher.fleet) == 1
