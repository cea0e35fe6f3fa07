"""Running stacks that tests use one after another: to boot one costs more than most tests take.

A test that kills, freezes, restarts or reconfigures a part, or that depends on what a picker has
learned, has a stack of its own: `Stack.running`. All others borrow: `StackPool.lend`. After each
loan the stack must be as it was, so that a leak is found in the test that made it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.stack import Stack, until

LIMIT = 2
"""How many stacks run beside the one that is lent, while tests of its group follow."""


def shares(fleet: str) -> list[pytest.MarkDecorator]:
    """The marks of a module whose tests borrow. Those of one fleet, of whatever module, run one
    after another: tests/scheduling.py reads its name."""
    assert fleet
    return [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


@dataclass
class _Running:
    stack: Stack
    exits: AsyncExitStack
    pids: list[int] = field(default_factory=list)


class StackPool:
    """The stacks by what they are made of. Its loop must outlive the tests that borrow.

    With `is_last_loan` a stack ends with its loan: one that idles takes processor time for nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.is_last_loan = False
        self._folder = folder
        self._idle: dict[str, _Running] = {}
        self._booted = 0

    @asynccontextmanager
    async def lend(
        self,
        *,
        slots: tuple[int, ...] = (2, 4),
        flags: tuple[tuple[str | Path, ...], ...] = (),
        settings: dict[str, Any] | None = None,
        kind: str = "llama",
        mode: str = "discovery",
        alter: Callable[[str], str] = str,
    ) -> AsyncIterator[Stack]:
        """A calm stack that is made so; the arguments are those of `Stack.running`."""
        made_of = {"slots": slots, "flags": flags, "settings": settings, "kind": kind, "mode": mode}
        key = json.dumps(made_of | {"alter": alter.__qualname__}, default=str)
        before = asyncio.all_tasks()
        running = self._idle.pop(key, None)
        if running is None:
            running = await self._boot(**made_of, alter=alter)
        try:
            yield running.stack
            await _end_tasks(asyncio.all_tasks() - before)
            await assert_calm(running.stack, running.pids)
        except BaseException:
            await running.exits.aclose()
            raise
        self._idle[key] = running
        while len(self._idle) > (0 if self.is_last_loan else LIMIT):
            oldest = self._idle.pop(next(iter(self._idle)))
            await oldest.exits.aclose()

    async def close(self) -> None:
        """Stop all of them."""
        while self._idle:
            _, running = self._idle.popitem()
            await running.exits.aclose()

    async def _boot(self, **made_of: Any) -> _Running:
        self._booted += 1
        folder = self._folder / str(self._booted)
        folder.mkdir()
        exits = AsyncExitStack()
        stack = await exits.enter_async_context(Stack.running(folder, **made_of))
        return _Running(stack, exits, stack.pids())


async def _end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """End what a test began and did not wait for, as the end of its own loop would."""
    tasks.discard(asyncio.current_task())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def assert_calm(stack: Stack, pids: list[int]) -> None:
    """Nothing is left of a test: no lease, ticket, stream or foreign slot, within a minute. No
    part was replaced, no book corrected, and nothing was written that is a bug."""
    await stack.leave_all()
    assert stack.pids() == pids, "this test must have a stack of its own: it replaced a part"
    seen: object = None

    async def is_calm() -> bool:
        nonlocal seen
        try:
            seen = status = await stack.status()
            # A server that is asked all the time does not notice that its client left: decision
            # 0007. So it is asked only when the picker knows of nothing.
            addresses = {server.address for server in stack.servers}
            return not disorder(status, addresses) and not any(await stack.busy())
        except httpx.TransportError as error:
            seen = error
            return False

    try:
        await until(is_calm)
    except TimeoutError:
        pytest.fail(f"left in disorder: {seen}")
    await stack.check_audit()
    assert stack.picker is not None
    assert "Traceback" not in stack.picker.log.read_text()


def disorder(status: dict[str, Any], addresses: set[str]) -> list[str]:
    """What is not as it was when the stack was new."""
    found = [name for name in ("exchanges", "running") if status[name]]
    found += ["queue"] * bool(status["queue"]["queued"])
    found += ["fleet"] * (status["endpoints"].keys() != addresses)
    for address, endpoint in status["endpoints"].items():
        slots = endpoint["slots"]
        is_calm = (
            endpoint["health"] == "ready"
            and endpoint["intent"] == "active"
            and not endpoint["is_removed"]
            and not endpoint["is_ejected"]
            and slots["idle"] == slots["total"]
        )
        found += [address] * (not is_calm)
    return found
