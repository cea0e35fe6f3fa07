"""Plain overload: nothing fails, there is only more to do than the slots can.

Eight slots of 0.4 s: 60 requests/s with 2 s of patience, then 20/s, exactly what they can, with
5 s; three storms of 2,000 clients who all leave; two bursts of 40 that wait for 1 ms. After each
part every client was answered in time and every slot is free again.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rigs.chaos.accounting import Verdict
from rigs.chaos.attack import account_for
from rigs.chaos.calm import calm_down, footprint
from rigs.chaos.load import Clients
from rigs.chaos.logs import PREFIX
from rigs.chaos.planned_request import PlannedRequest
from rigs.chaos.records import Leftover
from rigs.chaos.stage import Stage
from rigs.leaving import Way
from rigs.node_client import NodeClient, node_client

SERVICE_S = 0.4
SLOTS = (2, 2, 4)
TIMEOUT_S = 5.0
FORGOTTEN_S = 15.0
"""A client that has no answer so long past its deadline will get none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How long and how large; the short form is for `make test`."""

    steady_s: float = 20.0
    storms: int = 3
    storm: int = 2000
    bursts: int = 2
    burst: int = 40


SHORT = Sizes(steady_s=6.0, storms=1, storm=600)


async def attack(
    folder: Path, sizes: Sizes, seed: int, say: Callable[[str], None], mode: str = "discovery"
) -> Verdict:
    """Run all parts on one stack and judge them together."""
    # No server fails here, though on a busy machine one may not get to answering for seconds.
    scraper = {"slow_interval_s": 0.5, "connect_timeout_s": 20.0, "read_timeout_s": 20.0}
    settings = {"queue": {"timeout_s": TIMEOUT_S}, "scraper": scraper}
    stage = Stage(folder, mode=mode, settings=settings)
    async with aclosing(stage), node_client(say) as node:
        return await _attack(stage, node, sizes, Random(seed), say)


async def _attack(
    stage: Stage,
    node: NodeClient | None,
    sizes: Sizes,
    source: Random,
    say: Callable[[str], None],
) -> Verdict:
    for slots in SLOTS:
        await stage.add_server(slots, flags=("--service-time", str(SERVICE_S)))
    await stage.begin()
    before = await footprint(stage)
    clients = Clients([stage.members[0].envoy_port], no_answer_s=FORGOTTEN_S, node=node)
    parts = [
        ("60 requests/s, patience 2 s", _steady(clients, source, 60, 2000, sizes.steady_s)),
        ("20 requests/s, patience 5 s", _steady(clients, source, 20, 5000, sizes.steady_s)),
        *(
            (f"storm of {sizes.storm} that leave", _storm(clients, source, sizes.storm))
            for _ in range(sizes.storms)
        ),
        *(
            (f"burst of {sizes.burst} that wait 1 ms", _burst(clients, source, sizes.burst))
            for _ in range(sizes.bursts)
        ),
    ]
    left: list[Leftover] = []
    for what, part in parts:
        begun = len(clients.calls)
        await part
        await clients.join()
        rest = await calm_down(stage, None)
        left += [Leftover(what=f"after {what}: {one.what}", value=one.value) for one in rest]
        text = "; ".join(f"{one.what}: {one.value}" for one in rest) or "nothing"
        say(f"{what}: {len(clients.calls) - begun} requests, left over: {text}")
    left += [one for one in await calm_down(stage, before) if one not in left]
    left += await stage.stop()
    return account_for(stage, clients, left)


def _planned(
    source: Random,
    patience_ms: int,
    leaves_after_s: float | None = None,
    way: Way = Way.FIN,
) -> PlannedRequest:
    return PlannedRequest(
        id=f"{PREFIX}{source.getrandbits(64):016x}",
        kind="overload" if leaves_after_s is None else "storm",
        tokens=4,
        is_streamed=source.random() < 0.5,
        patience_ms=patience_ms,
        leaves_after_s=leaves_after_s,
        way=way,
    )


async def _steady(
    clients: Clients, source: Random, rate: float, patience_ms: int, seconds: float
) -> None:
    """Evenly, whatever becomes of them."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began_at + number / rate - loop.time()))
        clients.send(_planned(source, patience_ms))


async def _storm(clients: Clients, source: Random, count: int) -> None:
    """All at once; each leaves within a second, whether it waits or is being served."""
    for _ in range(count):
        clients.send(_planned(source, 5000, source.random(), source.choice(clients.ways)))
        await asyncio.sleep(0)


async def _burst(clients: Clients, source: Random, count: int) -> None:
    for _ in range(count):
        clients.send(_planned(source, 1))
