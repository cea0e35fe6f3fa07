"""Exchanges per second and added latency, beside a picker that does nothing."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import load, rig
from bench.process import cpu_seconds
from bench.result import Row, Section, at_least, at_most, none_of
from extproc.demo.process import Children

ROUNDS = 15
ROUND_S = 1.5
"""Short ones: only what ran within seconds of each other can be compared."""
CONNECTIONS = 32
AIO, GO = "grpc.aio no-op", "Go no-op"
OURS = "Coxswain"


async def measure(say: Callable[[str], None]) -> Section:
    """Alternate between Envoys before the same server: without a picker, with the floors, and with
    ours."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Children(folder) as children:
            pids, ports = await _start(children, folder, say)
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

    def share(of: str) -> float:
        return median(
            ours.rate / other.rate for ours, other in zip(busy[OURS], busy[of], strict=True)
        )

    go = [at_least("rate, Coxswain to the Go no-op", share(GO), 1.0)] if GO in pids else []
    return Section(
        title="Exchanges",
        method=f"{CONNECTIONS} connections for the rate, one for the latency; medians of {ROUNDS} "
        f"rounds of {ROUND_S:g} s for each picker in turn, through Envoy with one worker; added "
        "latency is relative to the same Envoy without a picker; no bodies are read",
        rows=(
            *(Row(what=f"exchanges/s, {name}", value=f"{rate[name]:.0f}") for name in pids),
            at_least("rate, Coxswain to the grpc.aio no-op", share(AIO), 1.0),
            *go,
            *(
                Row(what=f"CPU time per exchange, {name}", value=f"{median(of):.0f} us")
                for name, of in used_us.items()
                if name != OURS
            ),
            at_most(f"CPU time per exchange, {OURS}", median(used_us[OURS]), 110, " us"),
            *(Row(what=f"added median, {name}", value=f"{added[name]:.2f} ms") for name in pids),
            at_most("added median, Coxswain to the grpc.aio no-op", added[OURS] / added[AIO], 1.0),
            *(Row(what=f"added p99, {name}", value=f"{tail[name]:.2f} ms") for name in pids),
            none_of("failed requests", failures),
        ),
    )


async def _start(
    children: Children, folder: Path, say: Callable[[str], None]
) -> tuple[dict[str, int], dict[str, int]]:
    """The process of each picker, and the port of the Envoy before each and before none."""
    server = (await rig.start_stand_ins(children, folder, 1, 256))[0]
    floor, noop, discovery = await rig.start_noop_picker(children, server)
    pids = {AIO: floor.pid}
    ports = {
        "none": await rig.start_envoy(children, folder, discovery, asks_picker=False),
        AIO: await rig.start_envoy(children, folder, discovery, processor_port=noop),
    }
    settings = {"log": {"level": "warning"}, "routing": {"read_body": "never"}}
    picker, port = await rig.start_picker(children, folder, [server], settings)
    pids[OURS] = picker.pid
    ports[OURS] = await rig.start_envoy(children, folder, port)
    if shutil.which("go") is None:
        say("exchanges: there is no Go here, so the Go no-op is left out")
    else:
        say("exchanges: building the Go no-op")
        go, port = await rig.start_go_picker(children, folder, server)
        pids[GO] = go.pid
        ports[GO] = await rig.start_envoy(children, folder, discovery, processor_port=port)
    return pids, ports


def _added(
    runs: dict[str, list[load.Load]], picker: str, of: Callable[[load.Load], float]
) -> float:
    """Milliseconds that a picker adds to that number: the median of what it added by round."""
    return median(of(one) - of(none) for one, none in zip(runs[picker], runs["none"], strict=True))
