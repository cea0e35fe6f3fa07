"""Exchanges per second and added latency, beside a picker that does nothing."""

import shutil

from bench.envoy_tree import pass_over_picker
from bench.result import Row, Say, Section, at_least, at_most, none_of
from bench.rig import WITHOUT_BODIES, Rig
from bench.rounds import CONNECTIONS, Contender, failed, take_turns

ROUNDS = 15
ROUND_S = 1.5
AIO, GO = "grpc.aio no-op", "Go no-op"
OURS = "Coxswain"


async def measure(say: Say) -> Section:
    """Alternate between Envoys before the same server: without a picker, with the floors, and with
    ours."""
    async with Rig() as rig:
        plain, *pickers = contenders = await _start(rig, say)
        await take_turns("exchanges", contenders, ROUNDS, ROUND_S, say, has_calm=True)
    floor, ours, *go = pickers
    used_us = {one.name: one.cost_us("picker") for one in pickers}
    added_ms = {one.name: one.added_ms(plain, lambda run: run.p50_ms) for one in pickers}
    tail_ms = {one.name: one.added_ms(plain, lambda run: run.p99_ms) for one in pickers}
    return Section(
        title="Exchanges",
        method=f"{CONNECTIONS} connections for the rate, one for the latency; medians of {ROUNDS} "
        f"rounds of {ROUND_S:g} s for each picker in turn, through Envoy with one worker; added "
        "latency is relative to the same Envoy without a picker; no bodies are read",
        rows=(
            *(Row(what=f"exchanges/s, {one.name}", value=f"{one.rate:.0f}") for one in pickers),
            at_least("rate, Coxswain to the grpc.aio no-op", ours.rate_to(floor), 1.0),
            *(at_least("rate, Coxswain to the Go no-op", ours.rate_to(one), 1.0) for one in go),
            *(
                Row(what=f"CPU time per exchange, {name}", value=f"{us:.0f} us")
                for name, us in used_us.items()
                if name != OURS
            ),
            at_most(f"CPU time per exchange, {OURS}", used_us[OURS], 110, " us"),
            *(
                Row(what=f"added median, {name}", value=f"{ms:.2f} ms")
                for name, ms in added_ms.items()
            ),
            at_most(
                "added median, Coxswain to the grpc.aio no-op", added_ms[OURS] / added_ms[AIO], 1.0
            ),
            *(Row(what=f"added p99, {name}", value=f"{ms:.2f} ms") for name, ms in tail_ms.items()),
            none_of("failed requests", failed(contenders)),
        ),
    )


async def _start(rig: Rig, say: Say) -> list[Contender]:
    """An Envoy before each picker; the first of them asks none."""
    (server,) = await rig.start_stand_ins(1, 256)
    floor, noop, discovery = await rig.start_noop_picker(server)
    plain = await rig.start_envoy(discovery, edit=pass_over_picker)
    before_floor = await rig.start_envoy(discovery, processor_port=noop)
    picker = await rig.start_picker([server], WITHOUT_BODIES)
    before_ours = await rig.start_envoy(picker.port)
    contenders = [
        Contender(name="none", port=plain.port),
        Contender(name=AIO, port=before_floor.port, parts={"picker": [floor.pid]}),
        Contender(name=OURS, port=before_ours.port, parts={"picker": [picker.child.pid]}),
    ]
    if shutil.which("go") is None:
        say("exchanges: there is no Go here, so the Go no-op is left out")
    else:
        say("exchanges: building the Go no-op")
        go = await rig.start_go_picker(server)
        envoy = await rig.start_envoy(discovery, processor_port=go.port)
        contenders.append(Contender(name=GO, port=envoy.port, parts={"picker": [go.child.pid]}))
    return contenders
