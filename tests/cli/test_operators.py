"""Claims about the commands that talk to a picker: each of them, against a real one over gRPC."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import yaml
from typer.testing import Result

from extproc.core.address import Address
from extproc.core.intake import IntakeOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.request import ReadingOptions
from tests.fakes.picker import running_picker, until

A, B = "10.0.0.1:8080", "10.0.0.2:8080"
Run = Callable[..., Coroutine[Any, Any, Result]]


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_endpoints(run: Run) -> None:
    """Nothing, then a table with the state and the sum, then the same as JSON."""
    async with running_picker() as picker:
        empty = await run("endpoints", picker=picker)
        assert empty.exit_code == 0 and "no endpoints yet" in empty.stdout
        picker.add_ready(A, slots=2, name="gpu-1")
        picker.add_ready(B, slots=3)
        table = await run("endpoints", picker=picker)
        assert "gpu-1 (10.0.0.1:8080)" in table.stdout and "2 endpoints" in table.stdout
        listed = parsed(await run("endpoints", "-o", "json", picker=picker))
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
        assert drained.output == "one is drained: 0 requests ended there\n", "one line for scripts"
        assert "out of the fleet" in (await run("endpoints", "remove", A, picker=picker)).stdout
        gone = await run("endpoints", "remove", A, picker=picker)
        assert gone.exit_code == 4 and "no endpoint" in gone.stderr


async def test_an_endpoint_behind_tls_with_a_key(run: Run) -> None:
    """The command names the files; no option takes the key itself."""
    async with running_picker() as picker:
        options = ("--server-ca", "/ca.pem", "--certificate-name", "gpu.example", "--inject-key")
        key = ("--api-key-file", "/keys/gpu")
        done = await run("endpoints", "add", f"https://{A}", *options, *key, picker=picker)
        assert done.exit_code == 0, done.output
        (newcomer,) = picker.added.newcomers.values()
        assert (newcomer.is_tls, newcomer.ca_file, newcomer.api_key_file) == (
            True,
            "/ca.pem",
            "/keys/gpu",
        )
        assert (newcomer.server_name, newcomer.inject_key) == ("gpu.example", True)
        refused = await run("endpoints", "add", B, "--api-key", "sk-plain", picker=picker)
        assert refused.exit_code == 2


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


async def test_requests_and_queue(run: Run) -> None:
    """Who runs, who waits and where; one is cancelled, one is followed to its server."""
    async with running_picker() as picker:
        picker.add_ready(A)
        calls = [await picker.ask(f"r{number}") for number in range(3)]
        assert "1 running, 2 waiting" in (await run("requests", picker=picker)).stdout
        waiting = parsed(await run("queue", "-o", "json", picker=picker))["requests"]
        assert [(each["request_id"], each["position"]) for each in waiting] == [
            ("r1", 1),
            ("r2", 2),
        ]
        cancelled = await run("requests", "cancel", "r1", picker=picker)
        assert "taken out of the line" in cancelled.stdout
        following = asyncio.create_task(run("queue", "watch", "r2", picker=picker))
        await until(lambda: len(asyncio.all_tasks()) > 1)
        calls[0].cancel()
        await until(lambda: len(picker.registry) == 2)  # r1 is over, and its client still here
        picker.observe(A)
        followed = await following
        assert followed.exit_code == 0 and f"served by {A}" in followed.stdout
        cut = await run("requests", "cancel", "r2", picker=picker)
        assert f"cut off on {A}" in cut.stdout
        missing = await run("requests", "cancel", "r2x", picker=picker)
        assert missing.exit_code == 4
        for call in calls:
            call.cancel()


async def test_explain(run: Run, tmp_path: Path) -> None:
    """In words and as JSON, with a body from the line, a file or stdin; 1 if it is refused."""
    async with running_picker() as picker:
        picker.add_ready(A, slots=2, name="gpu-1")
        said = await run("explain", "-d", '{"messages": []}', picker=picker)
        assert said.exit_code == 0 and f"It would go to {A} at once." in said.stdout
        assert "gpu-1" in said.stdout
        file = tmp_path / "body.json"
        file.write_text("{}", encoding="utf-8")
        answer = parsed(await run("explain", "-d", f"@{file}", "-o", "json", picker=picker))
        assert (answer["outcome"], answer["chosen"]) == ("picked", A)
        assert (await run("explain", "-d", "@-", picker=picker, stdin="{}")).exit_code == 0
        odd = await run("explain", "-H", "x-coxswain-queue-timeout-ms: soon", picker=picker)
        assert odd.exit_code == 1 and "refused: bad-request" in odd.stdout
        assert (await run("explain", "-H", "no colon", picker=picker)).exit_code == 2
        assert (await run("explain", "-d", "@/no/such/file", picker=picker)).exit_code == 2


GOLD = Objective(name="gold", criticality=Criticality.CRITICAL, queue_s=1.0)
CHEAP = Objective(name="cheap", criticality=Criticality.SHEDDABLE)
SERVICES = IntakeOptions(objectives=Objectives(by_name={"gold": GOLD, "cheap": CHEAP}))


async def test_explain_tells_all_of_it(run: Run) -> None:
    """Filters, scores in seconds, class, promise, fairness debt, position and expected time."""
    body = json.dumps({"prompt": "row the boat " * 100, "max_tokens": 8})
    async with running_picker(intake=SERVICES) as picker:
        picker.add_ready(A, name="gpu-1")
        picker.add_ready(B)
        for _ in range(50):
            picker.dispatcher.state.timing.watch(Address.parse(A)).ended(4.0)
        await run("endpoints", "disable", B, picker=picker)
        told = await run("explain", "-d", body, picker=picker)
        assert told.exit_code == 0, told.output
        for word in ("COST_S", "FIRST_TOKEN_S", "ANSWER_S", "SAVED_S", "FREE_SHARE"):
            assert word in told.stdout
        assert "an operator made it disabled" in told.stdout
        assert "class: standard" in told.stdout and "fairness_debt_s: " in told.stdout
        gold = ("-H", "x-gateway-inference-objective: gold")
        understood = parsed(await run("explain", *gold, "-o", "json", picker=picker))["understood"]
        assert (understood["class"], understood["promise_kept"]) == ("critical", "100.0%")
        calls = [await picker.ask(name) for name in ("runs", "waits")]
        waits = await run("explain", "-d", body, picker=picker)
        assert "It would wait at place 2, about " in waits.stdout
        assert "0 of its 1 slots are free" in waits.stdout
        first = await run("explain", *gold, picker=picker)
        assert "It would wait at place 1" in first.stdout
        cheap = ("-H", "x-gateway-inference-objective: cheap")
        shed = await run("explain", *cheap, picker=picker)
        assert shed.exit_code == 1 and "refused: shed" in shed.stdout
        for call in calls:
            call.cancel()


async def test_explain_is_as_strict_as_the_settings(run: Run) -> None:
    strict = ExchangeOptions(reading=ReadingOptions(is_strict=True))
    async with running_picker(exchange=strict) as picker:
        picker.add_ready(A)
        refused = await run("explain", "-d", '{"n": 1, "n": 2}', picker=picker)
        assert refused.exit_code == 1 and "refused: bad-request" in refused.stdout


async def test_reload(run: Run) -> None:
    """What changed, what needs a restart; a mistake ends with 1 and names its line."""
    async with running_picker() as picker:
        told = await run("config", "reload", picker=picker)
        assert "changed: queue.timeout_s" in told.stdout
        assert "after a restart: listen.grpc" in told.stdout
        picker.settings.problem = "coxswain.yaml:3: queue.timeot_s: unknown key"
        wrong = await run("config", "reload", picker=picker)
        assert wrong.exit_code == 1 and "coxswain.yaml:3" in wrong.stderr
        shown = (await run("config", "live", picker=picker)).stdout
        assert "timeout_s: 60" in shown
        as_json = parsed(await run("config", "live", "-o", "json", picker=picker))
        assert as_json == yaml.safe_load(shown)


async def test_watches_print_a_line_for_each_change(run: Run) -> None:
    """With `-o json --watch`, until the picker goes away (3)."""
    async with running_picker() as picker:
        picker.add_ready(A)
        watching = asyncio.create_task(run("endpoints", "--watch", "-o", "json", picker=picker))
        await until(
            lambda: any("compare the fleet" in task.get_name() for task in asyncio.all_tasks())
        )
        picker.observe(A, slots=5)
        await asyncio.sleep(0.2)
    result = await watching
    assert result.exit_code == 3
    first, *rest = map(json.loads, result.stdout.splitlines())
    assert first["is_snapshot_complete"] and first["changed"][0]["slots"]["total"] == 1
    assert rest[-1]["changed"][0]["slots"]["total"] == 5


async def test_nobody_there(run: Run) -> None:
    """One line that says what to do, and 3; never a traceback."""
    result = await run("endpoints", "--picker", "127.0.0.1:1")
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1 and "coxswain serve" in result.stderr


async def test_something_else_there(run: Run) -> None:
    """A port that speaks no gRPC is unreachable, too."""

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(shout, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        result = await run("queue", "--picker", f"127.0.0.1:{port}", "--timeout", "5")
    assert result.exit_code == 3 and result.stderr.startswith("coxswain: ")


async def test_options_of_the_group_reach_its_commands(run: Run) -> None:
    """`coxswain endpoints --picker X add Y` talks to X."""
    async with running_picker() as picker:
        where = f"127.0.0.1:{picker.port}"
        assert (await run("endpoints", "--picker", where, "add", A)).exit_code == 0
        assert len(picker.dispatcher.fleet) == 1


async def test_exit_codes_are_documented(run: Run) -> None:
    """Every command that talks to a picker says in its help how it ends."""
    for command in (
        ["top"],
        ["endpoints"],
        ["endpoints", "drain"],
        ["queue", "watch"],
        ["explain"],
    ):
        assert "Exit codes: 0 done" in (await run(*command, "--help")).stdout


async def test_half_a_certificate(run: Run) -> None:
    """A certificate without its key is a wrong command line."""
    result = await run("endpoints", "--cert", "x.pem")
    assert result.exit_code == 2 and "together" in result.stderr
