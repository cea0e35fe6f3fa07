"""One run: the fleet, the load, the script, the calm after it, and the verdict."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rigs.chaos.accounting import Verdict, judge
from rigs.chaos.calm import calm_down, footprint
from rigs.chaos.director import Director
from rigs.chaos.fleet import TOKENS_PER_S
from rigs.chaos.load import Clients
from rigs.chaos.logs import PREFIX, access_lines, request_ends, troubles
from rigs.chaos.planned_request import PATIENT_S, draw_request
from rigs.chaos.records import Closed, Leftover, Records, Window, keep
from rigs.chaos.script import Script
from rigs.chaos.security import CLIENT_KEY, Security
from rigs.chaos.stage import Stage
from rigs.chaos.watch import Watch, closed_between
from rigs.node_client import NodeClient, node_client
from rigs.picker_pages import CORRECTIONS

MEAN_S = 0.5
"""About how long a request of the mixed load keeps a slot."""
LOADS = (0.6, 1.4, 0.9)
"""Of what the fleet can do when all is well, in turns of `TURN_S`."""
TURN_S = 8.0
SETTINGS = {
    "queue": {"timeout_s": PATIENT_S},
    "scraper": {"slow_interval_s": 0.5, "read_timeout_s": 2.0, "slots_read_timeout_s": 5.0},
    "envoy": {
        "connect_timeout_s": 5.0,  # a busy rig is no dead server
        "message_timeout_s": 2.0,
        "per_try_idle_timeout_s": 20.0,
    },
    "drain_timeout_s": 3.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`done` counts what was done, by its name."""

    verdict: Verdict
    done: Counter[str]


async def attack(folder: Path, script: Script, say: Callable[[str], None]) -> Outcome:
    """Run one script in an empty folder."""
    security = None
    if script.is_secure:
        has_tls_servers = script.mode != "original-dst"
        security = Security(folder / "security", has_tls_servers=has_tls_servers)
    stage = Stage(
        folder,
        mode=script.mode,
        security=security,
        settings=SETTINGS,
        fronts=script.fronts,
        is_cluster=script.is_cluster,
    )
    async with aclosing(stage), node_client(say) as node:
        return await _attack(stage, node, script, say)


async def _attack(
    stage: Stage, node: NodeClient | None, script: Script, say: Callable[[str], None]
) -> Outcome:
    for one in script.fleet:
        await stage.add_server(one.slots, kind=one.kind, has_agent=one.has_agent)
    await stage.begin()
    director, watch = Director(stage, say), Watch(stage)
    before = await footprint(stage)
    clients = Clients(
        [one.envoy_port for one in stage.members],
        CLIENT_KEY if stage.security else "",
        node=node,
    )
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run())
        loading = group.create_task(_load(clients, script, is_over))
        async with asyncio.TaskGroup() as acts:
            for action in script.actions:
                acts.create_task(director.perform(action))
        is_over.set()
        await loading
        say(f"the script is over; {clients.open} requests are open")
        await clients.join()
        left = await calm_down(stage, before)
        watching.cancel()
    left += await stage.stop()
    corrected = sum(watch.corrections.values())
    if corrected:
        left.append(Leftover(what=f"{CORRECTIONS} of all pickers", value=corrected))
    left += [
        Leftover(what="error in the picker's log", value=text)
        for text in troubles(stage.picker_logs())
    ]
    verdict = account_for(stage, clients, left, director.windows, closed_between(watch.samples))
    return Outcome(verdict=verdict, done=director.done)


def account_for(
    stage: Stage,
    clients: Clients,
    leftovers: list[Leftover],
    windows: Iterable[Window] = (),
    closed: Iterable[Closed] = (),
) -> Verdict:
    """Judge and keep what a run recorded, once its logs are complete."""
    records = Records(
        calls=clients.calls,
        arrivals=[one for one in stage.journal if one.id.startswith(PREFIX)],
        lines=access_lines(stage.envoy_logs()),
        ended=request_ends(stage.picker_logs()),
        slots={server.address: server.slots for server in stage.servers},
        windows=list(windows),
        closed=list(closed),
        leftovers=leftovers,
    )
    keep(records, stage.folder)
    return judge(records)


async def _load(clients: Clients, script: Script, is_over: asyncio.Event) -> None:
    """Poisson arrivals, now more than the fleet can do, now less, until all is done."""
    source = Random(script.seed)
    slots = sum(one.slots for one in script.fleet)
    loop = asyncio.get_running_loop()
    began_at, due_s = loop.time(), 0.0
    while due_s < script.seconds or not is_over.is_set():
        rate = LOADS[int(due_s / TURN_S) % len(LOADS)] * slots / MEAN_S
        due_s += source.expovariate(rate)
        await asyncio.sleep(max(0.0, began_at + due_s - loop.time()))
        identity = f"{PREFIX}{script.seed}-{source.getrandbits(48):012x}"
        clients.send(draw_request(source, identity, TOKENS_PER_S, clients.ways))
