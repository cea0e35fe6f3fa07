"""Claims about extproc/cli/commands/explain.py, against a real picker over gRPC."""

from __future__ import annotations

import json
from pathlib import Path

from extproc.core.address import Address
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.request.translate import ReadingOptions
from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker

A, B = "10.0.0.1:8080", "10.0.0.2:8080"


async def test_explain(run: Run, tmp_path: Path) -> None:
    """In words and as JSON, with a body from the line, a file or stdin; 1 if it is rejected."""
    async with running_picker() as picker:
        picker.add_ready(A, slots=2, name="gpu-1")
        said = await run("explain", "-d", '{"messages": []}', picker=picker)
        assert said.exit_code == 0 and "It would go to gpu-1 at once." in said.stdout
        assert "gpu-1" in said.stdout
        file = tmp_path / "body.json"
        file.write_text("{}", encoding="utf-8")
        answer = parsed(await run("explain", "-d", f"@{file}", "-o", "json", picker=picker))
        assert (answer["decision"], answer["chosen"]) == ("picked", A)
        assert (await run("explain", "-d", "@-", picker=picker, stdin="{}")).exit_code == 0
        odd = await run("explain", "-H", "x-coxswain-queue-timeout-ms: soon", picker=picker)
        assert odd.exit_code == 1 and "rejected: bad-request" in odd.stdout
        wrong = await run("explain", "-H", "no colon", picker=picker)
        assert wrong.exit_code == 2 and "Invalid value for --header: write" in wrong.stderr
        wrong = await run("explain", "-d", "@/no/such/file", picker=picker)
        assert wrong.exit_code == 2
        assert "for --data: /no/such/file: no such file or directory" in wrong.stderr


GOLD = Objective(name="gold", criticality=Criticality.CRITICAL, queue_s=1.0)
CHEAP = Objective(name="cheap", criticality=Criticality.SHEDDABLE)
SERVICES = ResolverOptions(objectives=Objectives(by_name={"gold": GOLD, "cheap": CHEAP}))


async def test_explain_reports_all_of_it(run: Run) -> None:
    """Filters, scores in seconds, class, SLO, fairness debt, position and expected time."""
    body = json.dumps({"prompt": "row the boat " * 100, "max_tokens": 8})
    async with running_picker(resolver=SERVICES) as picker:
        picker.add_ready(A, name="gpu-1")
        picker.add_ready(B)
        for _ in range(50):
            picker.dispatcher.state.latency.endpoint(Address.parse(A)).lease_ended(4.0)
        await run("endpoints", "disable", B, picker=picker)
        told = await run("explain", "-d", body, picker=picker)
        assert told.exit_code == 0, told.output
        for word in ("COST_S", "FIRST_TOKEN_S", "ANSWER_S", "SAVED_S", "FREE_SHARE"):
            assert word in told.stdout
        assert "an operator made it disabled" in told.stdout
        assert "criticality: standard" in told.stdout and "fairness_debt_s: " in told.stdout
        gold = ("-H", "x-gateway-inference-objective: gold")
        resolved = parsed(await run("explain", *gold, "-o", "json", picker=picker))["resolved"]
        assert (resolved["criticality"], resolved["slo_attainment"]) == ("critical", "100.0%")
        calls = [await picker.ask(name) for name in ("runs", "waits")]
        waits = await run("explain", "-d", body, picker=picker)
        assert "It would be queued at position 2, about " in waits.stdout
        assert "0 of its 1 slots are free" in waits.stdout
        first = await run("explain", *gold, picker=picker)
        assert "It would be queued at position 1" in first.stdout
        cheap = ("-H", "x-gateway-inference-objective: cheap")
        shed = await run("explain", *cheap, picker=picker)
        assert shed.exit_code == 1 and "rejected: shed" in shed.stdout
        for call in calls:
            call.cancel()


async def test_explain_is_as_strict_as_the_settings(run: Run) -> None:
    strict = ExchangeOptions(reading=ReadingOptions(is_strict=True))
    async with running_picker(exchange=strict) as picker:
        picker.add_ready(A)
        rejected = await run("explain", "-d", '{"n": 1, "n": 2}', picker=picker)
        assert rejected.exit_code == 1 and "rejected: bad-request" in rejected.stdout
