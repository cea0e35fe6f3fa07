"""Processes of a supervisor's table, as `member_process.py` plays them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from extproc.processes.member import Member, Role
from extproc.processes.process_table import ProcessTable
from tests.fakes.envoy_stream import eventually

COMMAND = (sys.executable, str(Path(__file__).with_name("member_process.py")))


class StartedProcesses:
    """A table of such processes, and what they said."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.ended: list[str] = []
        self.changes = 0
        self.table = ProcessTable(
            command,
            {},
            heard=self._heard,
            ended=lambda member: self.ended.append(member.name),
            changed=self._changed,
        )

    async def start(self, role: Role, count: int) -> list[Member]:
        """Have this number of fronts or spares."""
        self.table.start_missing(role, count)
        present = self.table.fronts if role is Role.FRONT else self.table.spares
        await eventually(lambda: sum(each.has_started for each in present()) == count)
        return present()

    def orders(self, name: str, what: str) -> list[dict[str, Any]]:
        """The orders of a kind that a process got, with the number of their `sockets`."""
        orders = [said["order"] for who, said in self.said if who == name and "order" in said]
        return [order for order in orders if order["do"] == what]

    async def order_to(self, name: str, what: str) -> dict[str, Any]:
        """Wait for an order of this kind."""
        await eventually(lambda: self.orders(name, what) != [])
        return self.orders(name, what)[-1]

    def _heard(self, member: Member, message: dict[str, Any]) -> None:
        member.has_started = True
        self.said.append((member.name, message))

    def _changed(self) -> None:
        self.changes += 1


@asynccontextmanager
async def some_started(
    make: Callable[[], StartedProcesses] = StartedProcesses,
) -> AsyncIterator[StartedProcesses]:
    """They end with the block."""
    processes = make()
    try:
        yield processes
    finally:
        processes.table.stop_starting()
        for member in processes.table:
            member.end_at_once()
        await eventually(lambda: not list(processes.table))
