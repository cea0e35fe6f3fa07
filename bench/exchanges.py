"""Exchanges per second and added latency, beside a picker that does nothing."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import load, rig
from bench.process import cpu_seconds
from bench.result import Row, Section, at_least, at_most
from extproc.demo.process import Children

ROUNDS = 15
ROUND_S = 1.5
"""Short ones: only what ran within seconds of each other can be compared."""
CONNECTIONS = 32


async def measure(say: Callable[[str], None]) -> Section:
    """Alternate between three Envoys before the same server: no picker, the floor, and ours."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Children(folder) as children:
            server = (await rig.start_stand_ins(children, folder, 1, 256))[0]
            floor, noop = await rig.start_noop_picker(children, server)
            coxswain, ours = await rig.start_picker(
                children,
                folder,
                [server],
                {"log": {"level": "warning"}, "routing": {"read_body": "never"}},
            )
            pids = {"no-op": floor.pid, "coxswain": coxswain.pid}
            ports = {
                "none": await rig.start_envoy(children, folder, noop, asks_picker=False),
                "no-op": await rig.start_envoy(children, folder, noop),
                "coxswain": await rig.start_envoy(children, folder, ours),
            }
            for port in ports.values():
                await load.run(port, CONNECTIONS, 1.0)
            busy: dict[str, list[load.Load]] = {name: [] for name in ports}
            calm: dict[str, list[load.Load]] = {name: [] for name in ports}
            used_us: dict[str, list[float]] = {name: [] for name in pids}
            for number in range(ROUNDS):
                for picker, port in ports.items():
                    say(f"exchanges: round {number + 1} of {ROUNDS}, {picker}")
                    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
                    run = await load.run(port, CONNECTIONS, ROUND_S)
                    busy[picker].append(run)
                    if picker in pids:
                        used_s = cpu_seconds(pids[picker]) - before[picker]
                        used_us[picker].append(1e6 * used_s / run.requests)
                    calm[picker].append(await load.run(port, 1, ROUND_S))
    failures = sum(one.failures for runs in busy.values() for one in runs)
    rate = {name: median(one.rate for one in runs) for name, runs in busy.items()}
    added = {name: _added(calm, name, lambda one: one.p50_ms) for name in pids}
    tail = {name: _added(calm, name, lambda one: one.p99_ms) for name in pids}
    share = median(
        ours.rate / noop.rate for ours, noop in zip(busy["coxswain"], busy["no-op"], strict=True)
    )
    return Section(
        title="Exchanges",
        method=f"{CONNECTIONS} connections for the rate, one for the latency; medians of {ROUNDS} "
        f"rounds of {ROUND_S:g} s for each picker in turn, through Envoy with one worker; added "
        "latency is relative to the same Envoy without a picker; no bodies are read",
        rows=(
            Row(what="exchanges/s, no-op picker", value=f"{rate['no-op']:.0f}"),
            Row(what="exchanges/s, Coxswain", value=f"{rate['coxswain']:.0f}"),
            at_least("rate, Coxswain to no-op", share, 0.85),
            *(
                Row(what=f"CPU time per exchange, {name}", value=f"{median(of):.0f} us")
                for name, of in used_us.items()
            ),
            Row(what="added median, no-op picker", value=f"{added['no-op']:.2f} ms"),
            Row(what="added median, Coxswain", value=f"{added['coxswain']:.2f} ms"),
            at_most("added median, Coxswain to no-op", added["coxswain"] / added["no-op"], 1.25),
            Row(what="added p99, no-op picker", value=f"{tail['no-op']:.2f} ms"),
            Row(what="added p99, Coxswain", value=f"{tail['coxswain']:.2f} ms"),
            Row(what="failed requests", value=str(failures), target="0", is_met=failures == 0),
        ),
    )


def _added(
    runs: dict[str, list[load.Load]], picker: str, of: Callable[[load.Load], float]
) -> float:
    """Milliseconds that a picker adds to that number: the median of what it added by round."""
    return median(of(one) - of(none) for one, none in zip(runs[picker], runs["none"], strict=True))
