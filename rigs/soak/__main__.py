"""The command `make soak`: what it does, what it prints, and how it ends."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.__main__ import machine
from bench.process import cpu_seconds, resident_bytes
from bench.result import Row, table
from bench.rig import Rig
from extproc.demo.process import Child, ChildError
from rigs.soak import audit, stack
from rigs.soak.samples import MIB, Sample, flatness

REQUESTS = 1_000_000
SHORT_REQUESTS = 15_000
CONNECTIONS = 48
PAGE = Path("docs/reliability.md")
POINTS = 25
"""Of each curve of the page."""
TITLE = "## Soak"
SETUP = (
    "A real Envoy and the picker run in front of three stub servers (four slots of 20 ms) and a "
    "simulated llama-server (two slots), with the clients on the same machine. "
    f"{CONNECTIONS} connections send one request after the other. Half of the requests ask for a "
    "stream, each has a different prompt, a third have a new session, and they belong to 50 "
    "tenants. Six of eight limit their queue time to 1 to 250 ms, which is too short for many, and "
    "3 % of the clients leave before the response, over HTTP/1.1 and HTTP/2, some of them Node's "
    "own clients. The "
    "picker's records of prompts, sessions and tenants are bounded: its memory grows until it "
    "reaches these bounds, after about 150,000 requests."
)
POLL_S = 0.1
REPORT_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run: its table, and what the picture is drawn from."""

    rows: list[Row]
    samples: list[Sample]

    @property
    def is_met(self) -> bool:
        return all(row.is_met is not False for row in self.rows)


def main(arguments: list[str] | None = None) -> int:
    """0 when everything held, 1 when something did not, 2 when it could not run."""
    given = _parser().parse_args(arguments)
    requests = given.requests or (SHORT_REQUESTS if given.short else REQUESTS)
    try:
        outcome = asyncio.run(soak(requests, _say, connections=given.connections, seed=given.seed))
    except ChildError as error:
        print(f"soak: {error}\n{error.tail}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("soak: stopped", file=sys.stderr)
        return 130
    print("\n".join(table(outcome.rows)))
    if given.write:
        write(PAGE, outcome)
        print(f"soak: wrote {PAGE}")
    print("soak: everything held" if outcome.is_met else "soak: BROKEN")
    return 0 if outcome.is_met else 1


async def soak(
    requests: int,
    say: Callable[[str], None],
    *,
    connections: int = CONNECTIONS,
    seed: int = 1,
) -> Outcome:
    """Send the requests and evaluate the run. All that it starts ends with it."""
    async with (
        Rig() as rig,
        httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_keepalive_connections=0)) as http,
    ):
        running = await stack.start(rig, http)
        before = await audit.begin(running)
        cpu_s, began = cpu_seconds(running.picker.pid), time.monotonic()
        clients = await rig.start(
            "clients",
            [
                *(sys.executable, "-m", "rigs.soak.clients", "--port", str(running.port)),
                *("--requests", str(requests), "--connections", str(connections)),
                *("--seed", str(seed)),
            ],
        )
        samples: list[Sample] = []
        last: dict[str, Any] = {}
        reported_at = began
        async for line in _lines(clients):
            last, now = line, time.monotonic()
            if line["served_ms"] and line["probe_ms"]:
                samples.append(_sample(running, line, now - began))
            if now - reported_at >= REPORT_EVERY_S and samples:
                reported_at = now
                say(_progress(samples[-1], requests))
        elapsed_s = time.monotonic() - began
        cpu_s = cpu_seconds(running.picker.pid) - cpu_s
        rows = await audit.rows(running, last["outcomes"], last["sent"], before)
        sent = last["sent"]
    took = (
        Row(what="duration", value=f"{elapsed_s:.0f} s, {sent / elapsed_s:.0f} requests/s"),
        Row(what="CPU time of the picker", value=f"{1e6 * cpu_s / sent:.0f} us/request"),
    )
    return Outcome(rows=[*rows, *took, *flatness(samples)], samples=samples)


async def _lines(clients: Child) -> AsyncIterator[dict[str, Any]]:
    """What the clients print, as it comes, to the last line. Raises `ChildError` where that
    never comes."""
    with clients.log.open() as log:
        rest = ""
        while True:
            is_over = not clients.is_running
            rest += log.read()
            *whole, rest = rest.split("\n")
            for text in whole:
                if not text.startswith("{"):
                    continue
                line: dict[str, Any] = json.loads(text)
                yield line
                if line["is_done"]:
                    return
            if is_over:
                raise clients.exit_error()
            await asyncio.sleep(POLL_S)


def _sample(running: stack.Stack, line: dict[str, Any], at_s: float) -> Sample:
    return Sample(
        at_s=at_s,
        requests=line["sent"],
        picker_bytes=resident_bytes(running.picker.pid),
        envoy_bytes=resident_bytes(running.envoy.pid),
        served_ms=tuple(line["served_ms"]),
        probe_ms=tuple(line["probe_ms"]),
    )


def _progress(now: Sample, requests: int) -> str:
    rate = now.requests / now.at_s
    return (
        f"{now.requests:,} of {requests:,} requests, {rate:.0f}/s, "
        f"picker {now.picker_bytes / MIB:.1f} MiB, served in {now.served_ms[0]:.0f} ms "
        f"(99 %: {now.served_ms[1]:.0f}), {(requests - now.requests) / rate / 60:.0f} min left"
    )


def charts(samples: Sequence[Sample]) -> list[str]:
    """Memory and latencies over the requests, for Mermaid, which pages of Markdown draw."""
    thinned = samples[:: max(1, len(samples) // POINTS)]
    memory = {
        "picker": [sample.picker_bytes / MIB for sample in thinned],
        "Envoy": [sample.envoy_bytes / MIB for sample in thinned],
    }
    latency = {
        "served requests, 99 %": [sample.served_ms[1] for sample in thinned],
        "their median": [sample.served_ms[0] for sample in thinned],
        "median of requests that take no slot": [sample.probe_ms[0] for sample in thinned],
    }
    lines = []
    for unit, curves in (("Memory in MiB", memory), ("Latency in ms", latency)):
        lines += ["```mermaid", "xychart-beta", f'title "{unit}: {", ".join(curves)}"']
        lines += [f'x-axis "requests" 0 --> {thinned[-1].requests}']
        lines += [f"line [{', '.join(f'{one:.0f}' for one in each)}]" for each in curves.values()]
        lines += ["```", ""]
    return lines[:-1]


def write(page: Path, outcome: Outcome) -> None:
    """Put the run into its section of the page."""
    lines = [
        TITLE,
        "",
        f"The last run of `make soak`: {machine()}, on {time.strftime('%F', time.gmtime())}.",
        SETUP,
        "",
        *charts(outcome.samples),
        "",
        *table(outcome.rows),
    ]
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(replaced(old, "\n".join(lines)), encoding="utf-8")


def replaced(text: str, section: str) -> str:
    """The page with this section in place of the one of its title, or behind all others."""
    title = section.partition("\n")[0]
    parts = text.split("\n## ")
    kept = [part for part in parts if f"## {part}".partition("\n")[0].rstrip() != title]
    body = (
        "\n## ".join(kept).rstrip("\n")
        or "# Reliability\nThis page shows which failures were tested, and the results."
    )
    return f"{body}\n\n{section}\n"


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rigs.soak", description=__doc__)
    add = parser.add_argument
    add("--requests", type=int, help=f"number of requests (default {REQUESTS:,})")
    add("--short", action="store_true", help=f"send {SHORT_REQUESTS:,}, in about half a minute")
    add("--connections", type=int, default=CONNECTIONS, help="number of client connections")
    add("--seed", type=int, default=1, help="seed of the requests")
    add("--write", action="store_true", help=f"write the table and charts to {PAGE}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
