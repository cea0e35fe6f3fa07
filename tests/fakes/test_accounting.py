"""Claims about tests/fakes/accounting.py: who was overtaken, and what a server shows."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import httpx

from tests.fakes.accounting import CHAT, NUMBER, READ, SERVICE, Account, AccountingServer, Trace
from tests.fakes.picker import until


def account(*requests: tuple[float, float, float]) -> Account:
    """Requests by when Envoy read them, when their slots became free, and when they started."""
    found = Account()
    for number, (read_at, freed_at, started_at) in enumerate(requests):
        found.traces[number] = Trace(
            number, read_at=read_at, freed_at=freed_at, started_at=started_at
        )
    return found


def overtaken(*requests: tuple[float, float, float]) -> list[int]:
    return [one.number for one in account(*requests).overtaken()]


def test_one_that_gets_a_later_slot_than_one_that_came_later_is_overtaken() -> None:
    assert overtaken((1.0, 5.0, 5.0), (2.0, 4.0, 4.0)) == [0]
    assert overtaken((1.0, 4.01, 4.02), (2.0, 4.0, 4.0)) == [0], "however short that is"
    assert overtaken((1.0, 4.0, 4.0), (2.0, 5.0, 5.0)) == []
    assert overtaken((1.0, 5.0, 5.0), (1.4, 4.0, 4.0)) == [], "they came close together"


def test_those_that_get_free_slots_in_one_moment_are_together() -> None:
    assert overtaken((1.0, 2.0, 4.1), (2.0, 2.0, 4.0)) == []
    assert overtaken((1.0, 2.0, 4.9), (2.0, 2.0, 4.0)) == [0], "its slot stood idle for it"


async def test_a_server_shows_each_task_by_its_number() -> None:
    """As llama-server does: a task keeps its number and its slot, and has its number while it waits
    for one."""
    begun, ends = ([asyncio.Event() for _ in range(4)] for _ in range(2))
    traces = {number: Trace(number) for number in range(4)}

    async def work(number: float) -> None:
        begun[int(number)].set()
        await ends[int(number)].wait()

    async with AsyncExitStack() as exits:
        server = await exits.enter_async_context(AccountingServer(Account(traces), 2, work))
        for each in ends:
            exits.callback(each.set)
        url = f"http://127.0.0.1:{server.port}"
        client = await exits.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60))

        def ask(number: int) -> asyncio.Task[httpx.Response]:
            headers = {NUMBER: str(number), SERVICE: str(number), READ: str(time.time())}
            return asyncio.create_task(client.post(CHAT, headers=headers))

        async def end(answer: asyncio.Task[httpx.Response], number: int) -> None:
            ends[number].set()
            assert (await answer).status_code == 200

        async def shown() -> list[int | None]:
            slots = (await client.get("/slots")).json()
            return [slot["id_task"] if slot["is_processing"] else None for slot in slots]

        first = ask(0)
        await begun[0].wait()
        assert await shown() == [0, None]
        second = ask(1)
        await begun[1].wait()
        assert await shown() == [0, 1]
        await end(first, 0)
        assert await shown() == [None, 1]
        third = ask(2)
        await begun[2].wait()
        assert await shown() == [2, 1]
        fourth = ask(3)
        await until(lambda: traces[3].is_over)
        assert await shown() == [2, 1]
        await end(second, 1)
        await begun[3].wait()
        assert await shown() == [2, 3]
        await end(third, 2)
        await end(fourth, 3)
        assert await shown() == [None, None]
