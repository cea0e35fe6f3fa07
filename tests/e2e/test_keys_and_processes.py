"""Clients' keys where several processes and machines serve: a key that is revoked stops opening at
all of them, also while a core or a machine dies, and a mistake in the file costs no key."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from extproc.settings.client_keys_file import add_key, new_key, revoke_keys
from tests.e2e.clustered import clustered
from tests.e2e.fronted import Fronted, fronted
from tests.e2e.stack import CHAT, until
from tests.fakes.valkey import MISSING, PROGRAM
from tests.long_run import in_long_run

pytestmark = [pytest.mark.e2e]

DAY = "2026-01-31"
OWN = {"authorization": "Bearer sk-web"}
FRONTS = 2


class Answer(NamedTuple):
    url: str
    status: int
    sent_at: float
    came_at: float


class Asking:
    """A client that asks again and again with one key, at each of several Envoys."""

    def __init__(self, client: httpx.AsyncClient, urls: Sequence[str], key: str) -> None:
        self._client = client
        self._urls = urls
        self._headers = {"authorization": f"Bearer {key}"}
        self.answers: list[Answer] = []

    async def ask(self, url: str) -> int:
        sent_at = time.monotonic()
        try:
            answer = await self._client.post(url, json={"messages": []}, headers=self._headers)
        except httpx.TransportError:
            return 0
        self.answers.append(Answer(url, answer.status_code, sent_at, time.monotonic()))
        return answer.status_code

    async def run(self, url: str) -> None:
        while True:
            await self.ask(url)
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self.run(url)) for url in self._urls]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def until_served(self) -> None:
        async def is_served() -> bool:
            await asyncio.sleep(0)
            return {each.url for each in self.answers if each.status == 200} == set(self._urls)

        await until(is_served)

    async def until_rejected(self) -> None:
        """At each of the Envoys."""
        for url in self._urls:

            async def is_rejected(url: str = url) -> bool:
                return await self.ask(url) == 401

            await until(is_rejected)

    def assert_closed_for_good(self) -> None:
        """What was sent to an Envoy after its first 401 was not served."""
        for url in self._urls:
            answers = [each for each in self.answers if each.url == url]
            closed_at = min(each.came_at for each in answers if each.status == 401)
            served = [each.sent_at for each in answers if each.status == 200]
            assert served and max(served) < closed_at


def file_with_keys(folder: Path, *names: str) -> tuple[Path, list[str]]:
    """A file with a key of the stack's own, and one of each other client."""
    file = folder / "keys"
    file.write_text("web sk-web\n", encoding="ascii")
    keys = [new_key() for _ in names]
    for name, key in zip(names, keys, strict=True):
        add_key(file, name, key, DAY)
    return file, keys


def add_mistake(file: Path) -> None:
    with file.open("a", encoding="ascii") as stream:
        stream.write("nonsense\n")


async def mistake_in_the_file(stack: Fronted, file: Path, revoked: str) -> None:
    """The next core cannot read the file, and knows the keys of the one before."""
    add_mistake(file)

    async def is_told() -> bool:
        try:
            return any("keys_file" in each for each in (await stack.stack.status())["problems"])
        except httpx.TransportError:
            return False

    await until(is_told)
    [core] = await stack.pids("core")
    os.kill(core, signal.SIGKILL)
    await until_led_by_another(stack, core)
    asking = Asking(stack.stack.client, [stack.stack.url(CHAT)], revoked)
    answer = await stack.stack.client.post(stack.stack.url(CHAT), json={"messages": []})
    assert answer.status_code == 200
    await asking.until_rejected()
    await until(is_told)


async def until_led_by_another(stack: Fronted, core: int) -> None:
    async def is_another() -> bool:
        return core not in await stack.pids("core")

    await until(is_another)
    await stack.until_complete(FRONTS)


async def test_a_key_is_revoked_while_a_core_dies(tmp_path: Path) -> None:
    file, [key] = file_with_keys(tmp_path, "batch")
    settings = {"clients": {"keys_file": str(file)}}
    async with fronted(tmp_path, fronts=FRONTS, settings=settings, headers=OWN) as stack:
        asking = Asking(stack.stack.client, [stack.stack.url(CHAT)], key)
        async with asking.running():
            await asking.until_served()
            [core] = await stack.pids("core")
            os.kill(core, signal.SIGKILL)
            revoke_keys(file, "batch")
            await asking.until_rejected()
            await until_led_by_another(stack, core)
        asking.assert_closed_for_good()
        await mistake_in_the_file(stack, file, key)
        picker = stack.stack.picker
        assert picker is not None and key not in picker.log.read_text()


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
@in_long_run
async def test_a_key_is_revoked_while_a_machine_dies(tmp_path: Path) -> None:
    """The members have the same file. First both live, then the one that leads does not."""
    file, [first, second] = file_with_keys(tmp_path, "first", "second")
    settings = {"clients": {"keys_file": str(file)}}
    async with clustered(tmp_path, settings=settings, headers=OWN) as stack:
        urls = {name: member.url(CHAT) for name, member in stack.members.items()}
        leader, other = await stack.leader(), await stack.other()
        client = stack.members[other].client
        asking = Asking(client, list(urls.values()), first)
        async with asking.running():
            await asking.until_served()
            revoke_keys(file, "first")
            await asking.until_rejected()
        asking.assert_closed_for_good()
        asking = Asking(client, [urls[other]], second)
        async with asking.running():
            await asking.until_served()
            await stack.strike_all(leader, signal.SIGKILL)
            revoke_keys(file, "second")
            await asking.until_rejected()
            assert await stack.leader() == other
            await stack.until_complete(1)
        asking.assert_closed_for_good()
        answer = await client.post(urls[other], json={"messages": []})
        assert answer.status_code == 200
