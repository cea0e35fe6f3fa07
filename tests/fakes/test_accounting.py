"""Claims about tests/fakes/accounting.py: who was overtaken, and what a server shows."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial

import httpx

from tests.e2e.stack import until
from tests.fakes.accounting import CHAT, NUMBER, READ, SERVICE, Account, AccountingServer, Trace


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
    ends = [asyncio.Event() for _ in range(4)]
    account = Account({number: Trace(number) for number in range(4)})

    async def work(index: float) -> None:
        await ends[int(index)].wait()

    async with AsyncExitStack() as exits:
        server = await exits.enter_async_context(AccountingServer(account, 2, work))
        for end in ends:
            exits.callback(end.set)
        url = f"http://127.0.0.1:{server.port}"
        client = await exits.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60))

        async def are_shown(*tasks: int | None) -> bool:
            slots = (await client.get("/slots")).json()
            assert all(slot["is_processing"] == ("id_task" in slot) for slot in slots)
            return [slot.get("id_task") for slot in slots] == list(tasks)

        async def is_over() -> bool:
            await asyncio.sleep(0)
            return account.over() == [account.traces[3]]

        answers = []
        for index, shown in enumerate([(0, None), (0, 1)]):
            answers.append(asyncio.create_task(ask(client, index)))
            await until(partial(are_shown, *shown))
        ends[0].set()
        await until(partial(are_shown, None, 1))
        answers.append(asyncio.create_task(ask(client, 2)))
        await until(partial(are_shown, 2, 1))
        answers.append(asyncio.create_task(ask(client, 3)))
        await until(is_over)
        ends[1].set()
        await until(partial(are_shown, 2, 3))
        ends[2].set()
        ends[3].set()
        assert [answer.status_code for answer in await asyncio.gather(*answers)] == [200] * 4
        assert await are_shown(None, None)


async def ask(client: httpx.AsyncClient, number: int) -> httpx.Response:
    headers = {NUMBER: str(number), SERVICE: str(number), READ: str(time.time())}
    return await client.post(CHAT, headers=headers)
