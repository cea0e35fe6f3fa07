"""What reading bodies costs: short ones beside the no-op picker, long ones against a bound."""

from bench.result import Row, Say, Section, at_least, none_of
from bench.rig import Rig
from bench.rounds import CONNECTIONS, Contender, failed, take_turns

ROUNDS = 3
ROUND_S = 4.0
SHORT_BYTES, LONG_BYTES = 1_000, 220_000
LEAST_LONG_RATE = 500.0


async def measure(say: Say) -> Section:
    """Alternate between the floor, which sees no body, and ours, which reads each."""
    async with Rig() as rig:
        servers = await rig.start_stand_ins(2, 256)
        _, noop, discovery = await rig.start_noop_picker(servers[0])
        _, ours = await rig.start_picker(servers)
        ports = {
            "no-op": (await rig.start_envoy(discovery, processor_port=noop)).port,
            "coxswain": (await rig.start_envoy(ours)).port,
        }
        contenders = [
            Contender(name=f"{picker}, {size} bytes", port=port, body_bytes=size)
            for size in (SHORT_BYTES, LONG_BYTES)
            for picker, port in ports.items()
        ]
        await take_turns("bodies", contenders, ROUNDS, ROUND_S, say)
    short_floor, short, long_floor, long = (one.rate for one in contenders)
    return Section(
        title="Bodies",
        method=f"Chat requests over {CONNECTIONS} connections through Envoy with one worker, two "
        f"endpoints; medians of {ROUNDS} alternating rounds of {ROUND_S:g} s; Coxswain reads the "
        "model and hashes the prompt of each, the no-op picker gets no bodies",
        rows=(
            Row(what="1 KB, exchanges/s, no-op picker", value=f"{short_floor:.0f}"),
            Row(what="1 KB, exchanges/s, Coxswain", value=f"{short:.0f}"),
            at_least("1 KB, rate, Coxswain to no-op", short / short_floor, 0.6),
            Row(what="220 KB, exchanges/s, no-op picker", value=f"{long_floor:.0f}"),
            at_least("220 KB, exchanges/s, Coxswain", long, LEAST_LONG_RATE, digits=0),
            none_of("failed requests", failed(contenders)),
        ),
    )
