"""Claims about extproc/keeper/machine.py: what is wanted gets loaded, within the memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.placement import load_policy
from extproc.demo.port import free_ports
from extproc.keeper.machine import Machine
from extproc.keeper.model_server import ModelServer
from extproc.keeper.model_status import ModelState
from extproc.keeper.models_file import ModelEntry
from tests.keeper.test_model_server import TINY, Kept
from tests.keeper.waits import until

MEMORY_MB = 100


class Kit:
    """A machine of small servers; `most_mb` is the most memory that processes ever had."""

    def __init__(self, name: str = "gpu-1") -> None:
        self.most_mb = 0
        self.on_change: Callable[[], None] = lambda: None
        self.machine = Machine(name, MEMORY_MB, self._changed)

    def add(self, name: str, memory_mb: int, *more: str, **entry: Any) -> None:
        cmd = [sys.executable, str(TINY), *more]
        kept = Kept()
        self.machine.servers[name] = ModelServer(
            name,
            ModelEntry.model_validate({"cmd": cmd, "memory_mb": memory_mb, **entry}),
            Address.of("127.0.0.1", free_ports(1)[0]),
            endpoint_name=f"{self.machine.name}.{name}",
            make_agent=kept._agent,
            changed=self.machine.changed,
        )

    def _changed(self) -> None:
        self.on_change()
        servers = self.machine.servers.values()
        self.most_mb = max(
            self.most_mb, sum(one.entry.memory_mb for one in servers if one.pid is not None)
        )

    @property
    def states(self) -> dict[str, str]:
        return {name: one.status.state.value for name, one in self.machine.servers.items()}

    async def until_loaded(self, *names: str) -> None:
        await until(
            lambda: {n for n, state in self.states.items() if state == "loaded"} == set(names),
            lambda: self.states,
        )


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    made = Kit()
    yield made
    await made.machine.stop(0.0)
    assert all(one.pid is None for one in made.machine.servers.values())


async def test_a_swap_never_takes_more_memory_than_there_is(kit: Kit) -> None:
    for name, memory_mb in (("a", 60), ("b", 60), ("c", 40)):
        kit.add(name, memory_mb)
    kit.machine.want(["a", "c"])
    await kit.until_loaded("a", "c")
    kit.machine.want(["b", "c"])
    assert kit.machine.waiting == ["b"]
    await kit.until_loaded("b", "c")
    kit.machine.want(["a"])
    kit.machine.want(["c", "a", "unknown"])
    await kit.until_loaded("a", "c")
    assert kit.most_mb <= MEMORY_MB and kit.machine.used_mb == MEMORY_MB


async def test_what_waits_first_is_not_overtaken(kit: Kit) -> None:
    """The memory that b waits for is not given to c, which would fit now."""
    kit.add("a", 60)
    kit.add("b", 80)
    kit.add("c", 40)
    kit.machine.want(["a"])
    await kit.until_loaded("a")
    kit.machine.want(["b", "c"])
    assert kit.machine.waiting == ["b", "c"] and kit.machine.used_mb == 60
    await kit.until_loaded("b")
    assert kit.machine.waiting == ["c"]
    kit.machine.want(["c"])
    await kit.until_loaded("c")


async def test_models_that_exclude_each_other_wait_for_each_other(kit: Kit) -> None:
    kit.add("a", 1, exclusive_with=["b"])
    kit.add("b", 1)
    assert kit.machine.excluded_by("b") == {"a"}
    kit.machine.want(["a", "b"])
    await kit.until_loaded("a")
    assert kit.machine.waiting == ["b"]
    kit.machine.want(["b"])
    await kit.until_loaded("b")


async def test_a_wish_may_change_at_any_time(kit: Kit) -> None:
    kit.add("a", 60, "--load", "0.2")
    kit.add("b", 60, "--load", "0.2")
    for wish in ("a", "b", "a", "b"):
        kit.machine.want([wish])
        await asyncio.sleep(0.05)
    await kit.until_loaded("b")
    kit.machine.want([])
    await until(lambda: set(kit.states.values()) == {"unloaded"})
    await until(lambda: kit.machine.used_mb == 0)


async def test_a_failed_model_has_no_memory_and_waits_for_an_operator(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_policy, "FIRST_PAUSE_S", 0.01)
    kit.add("a", 60, "--exit-after", "0")
    kit.add("b", 60)
    kit.machine.want(["a", "b"])
    await kit.until_loaded("b")
    assert kit.states["a"] == "failed" and kit.machine.waiting == []
    exits = kit.machine.servers["a"].status.exits
    kit.machine.want(["a"], retried=["a"])
    await until(lambda: kit.machine.servers["a"].status.exits > exits)


@pytest.mark.parametrize("drain_s", [0.0, 30.0])
async def test_a_stop_leaves_no_server(kit: Kit, drain_s: float) -> None:
    for name in ("a", "b"):
        kit.add(name, 1)
    kit.add("c", 1, "--load", "600")
    kit.machine.want(["a", "b", "c"])
    await kit.until_loaded("a", "b")
    assert kit.states["c"] == ModelState.LOADING.value
    await kit.machine.stop(drain_s)
    assert set(kit.states.values()) == {"unloaded"}
    kit.machine.want(["a"])
    kit.machine.reconcile()
    assert kit.machine.used_mb == 0, "it has stopped for good"


async def test_an_update_leaves_what_is_the_same(kit: Kit) -> None:
    """What differs is started anew when its old server has ended; what is gone is unloaded."""
    for name in ("a", "b", "c"):
        kit.add(name, 30)
    kit.machine.want(["a", "b", "c"])
    await kit.until_loaded("a", "b", "c")
    before = {name: one.pid for name, one in kit.machine.servers.items()}
    old = dict(kit.machine.servers)
    kit.add("b", 40)
    replaced = kit.machine.servers["b"]
    kit.machine.servers = old
    kit.machine.update(80, {"a": old["a"], "b": replaced})
    assert kit.machine.waiting == ["b"], "as the picker is to see it"
    await until(lambda: replaced.status.state is ModelState.LOADED and old["c"].pid is None)
    assert old["b"].pid is None and kit.states == {"a": "loaded", "b": "loaded"}
    assert kit.machine.servers["a"].pid == before["a"] and replaced.pid != before["b"]
    assert kit.machine.used_mb == 70
