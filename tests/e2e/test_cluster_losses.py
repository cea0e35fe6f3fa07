"""What is lost in a cluster, ten times each, behind real Envoys: the numbers of docs/cluster.md.
The servers and the clients account for each request."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.clustered import Clustered, clustered
from tests.fakes.valkey import MISSING, PROGRAM
from tests.long_run import in_long_run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(PROGRAM is None, reason=MISSING),
    in_long_run,
]

RUNS = 10
KINDS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)
STEP_S = 0.5
"""Between the parts of one loss."""

Fault = Callable[[Clustered, str, str], Awaitable[None]]
"""With the names of the leader and of the member that stands by."""


async def lose_nothing(stack: Clustered, leader: str, other: str) -> None:
    """The load alone."""


def lose_core(number: signal.Signals) -> Fault:
    async def fault(stack: Clustered, leader: str, other: str) -> None:
        [core] = await stack.pids(leader, "core")
        stack.strike(core, number)

    return fault


def lose_engine(number: signal.Signals) -> Fault:
    async def fault(stack: Clustered, leader: str, other: str) -> None:
        stack.valkey.strike(number)

    return fault


async def lose_engine_and_leader(stack: Clustered, leader: str, other: str) -> None:
    """Nobody can be elected until the engine is back."""
    await stack.valkey.kill()
    await asyncio.sleep(STEP_S)
    await stack.strike_all(leader, signal.SIGKILL)
    await asyncio.sleep(STEP_S)
    await stack.valkey.start()


def lose_machine(role: str, number: signal.Signals) -> Fault:
    """SIGTERM is for the supervisor, which ends its processes."""

    async def fault(stack: Clustered, leader: str, other: str) -> None:
        name = leader if role == "leader" else other
        if number is signal.SIGTERM:
            stack.strike(stack.pid(name), number)
        else:
            await stack.strike_all(name, number)

    return fault


class Loss(NamedTuple):
    name: str
    fault: Fault
    through: str = "both"
    """Whose Envoys get the requests: of both members, or of the one that is not lost."""
    ends: str = ""
    """Which member has to be started again."""
    offered: float = 1.2
    is_shared: bool = False
    """Whether each Envoy knows both members."""
    is_of_leader: bool = False
    """Whether the machine that leads is lost."""
    keeps_order: bool = True
    """Whether nobody is overtaken. Envoy notices that a machine is frozen by its health checks, and
    the other one may have assigned slots by then."""


def losses_of(role: str, through: str) -> list[Loss]:
    """Each way in which the machine of a role is lost."""
    return [
        Loss(
            f"{role}, {number.name}",
            lose_machine(role, number),
            through,
            ends="" if number is signal.SIGSTOP else role,
            is_of_leader=role == "leader",
        )
        for number in KINDS
    ]


LOSSES = [
    Loss("nothing at 0.9", lose_nothing, offered=0.9),
    Loss("nothing at 1.3", lose_nothing, offered=1.3),
    *(Loss(f"core of the leader, {number.name}", lose_core(number)) for number in KINDS),
    *(Loss(f"Valkey, {number.name}", lose_engine(number)) for number in KINDS),
    Loss("Valkey, then the leader", lose_engine_and_leader, "standby", "leader", is_of_leader=True),
    *losses_of("leader", "standby"),
    *losses_of("standby", "leader"),
    losses_of("standby", "both")[0]._replace(name="standby, shared", is_shared=True),
    *(
        each._replace(
            name=f"shared {each.name}", is_shared=True, keeps_order="SIGSTOP" not in each.name
        )
        for each in losses_of("leader", "both")
    ),
]


async def restore(stack: Clustered, loss: Loss, lost: str) -> None:
    """Both members and the engine are there again, serve, and hold nothing."""
    if stack.valkey.is_running:
        stack.valkey.strike(signal.SIGCONT)
    else:
        await stack.valkey.start()
    for name, member in stack.members.items():
        assert member.picker is not None
        if name == lost:
            await member.picker.wait()
            await member.restart_picker()
        else:
            for pid in await stack.all_pids(name):
                with suppress(ProcessLookupError):  # one that goes on may end another one
                    os.kill(pid, signal.SIGCONT)
    await stack.until_complete(2)
    await stack.until_served()
    await stack.until_calm()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
async def test_ten_runs_of_each_loss(tmp_path: Path, loss: Loss) -> None:
    over, blind, overtaken, refused, waits = [], [], [], [], []
    async with clustered(tmp_path, is_shared=loss.is_shared) as stack:
        account = stack.account
        for seed in range(RUNS):
            account.traces.clear()
            leader, other = await stack.leader(), await stack.other()
            roles = {"leader": leader, "standby": other}
            through = (leader, other) if loss.through == "both" else (roles[loss.through],)

            async def fault(leader: str = leader, other: str = other) -> None:
                await loss.fault(stack, leader, other)

            await stack.run(fault, through=through, offered=loss.offered, seed=seed)
            over.append(len(account.over()))
            blind.append(0 if loss.is_shared else len(account.blind(stack.broken_at)))
            overtaken.append(len(account.overtaken()))
            refused.append(len(account.unanswered()))
            waits.append(max(one.started_at - one.sent_at for one in account.traces.values()))
            await restore(stack, loss, roles.get(loss.ends, ""))
            assert await stack.leader() == (other if loss.is_of_leader else leader)
    text = f"over {over}, blind {blind}, overtaken {overtaken}, refused {refused}"
    print(f"\n{loss.name}: {text}, waits {[round(each, 1) for each in waits]}")  # noqa: T201 - it is what it is for
    assert not any(over) and not any(blind) and not any(refused)
    assert not any(overtaken) or not loss.keeps_order
