"""What reading bodies costs: short ones beside the no-op picker, long ones against a bound."""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import load, rig
from bench.result import Row, Section, at_least, none_of
from extproc.demo.process import Children

ROUNDS = 3
ROUND_S = 4.0
CONNECTIONS = 32
SHORT_BYTES, LONG_BYTES = 1_000, 220_000
QUIET = {"log": {"level": "warning"}}
LEAST_LONG_RATE = 500.0


async def measure(say: Callable[[str], None]) -> Section:
    """Alternate between the floor, which sees no body, and ours, which reads each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Children(folder) as children:
            servers = await rig.start_stand_ins(children, folder, 2, 256)
            _, noop, discovery = await rig.start_noop_picker(children, servers[0])
            _, ours = await rig.start_picker(children, folder, servers, QUIET)
            ports = {
                "no-op": await rig.start_envoy(children, folder, discovery, processor_port=noop),
                "coxswain": await rig.start_envoy(children, folder, ours),
            }
            rates: dict[tuple[str, int], list[load.Load]] = {}
            for number in range(ROUNDS + 1):
                for size in (SHORT_BYTES, LONG_BYTES):
                    for picker, port in ports.items():
                        say(f"bodies: round {number} of {ROUNDS}, {picker}, {size} bytes")
                        seconds = ROUND_S if number else 1.0  # the first warms up
                        run = await load.run(port, CONNECTIONS, seconds, size)
                        if number:
                            rates.setdefault((picker, size), []).append(run)
    rate = {key: statistics.median(one.rate for one in runs) for key, runs in rates.items()}
    failures = sum(one.failures for runs in rates.values() for one in runs)
    short = rate["coxswain", SHORT_BYTES] / rate["no-op", SHORT_BYTES]
    long = rate["coxswain", LONG_BYTES]
    return Section(
        title="Bodies",
        method=f"Chat requests over {CONNECTIONS} connections through Envoy with one worker, two "
        f"endpoints; medians of {ROUNDS} alternating rounds of {ROUND_S:g} s; Coxswain reads the "
        "model and hashes the prompt of each, the no-op picker gets no bodies",
        rows=(
            Row(what="1 KB, exchanges/s, no-op picker", value=f"{rate['no-op', SHORT_BYTES]:.0f}"),
            Row(what="1 KB, exchanges/s, Coxswain", value=f"{rate['coxswain', SHORT_BYTES]:.0f}"),
            at_least("1 KB, rate, Coxswain to no-op", short, 0.6),
            Row(what="220 KB, exchanges/s, no-op picker", value=f"{rate['no-op', LONG_BYTES]:.0f}"),
            Row(
                what="220 KB, exchanges/s, Coxswain",
                value=f"{long:.0f}",
                target=f">= {LEAST_LONG_RATE:g}",
                is_met=long >= LEAST_LONG_RATE,
            ),
            none_of("failed requests", failures),
        ),
    )
