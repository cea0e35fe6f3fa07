"""The network of a cluster is cut, between namespaces that stand for machines, behind real Envoys
and with a real Valkey or Redis: docs/cluster.md says what a client sees. The servers and the
clients account for each request, and are reached by everybody.

    a ---- b      a and b: a supervisor, a core, its spare, a front and an Envoy each
     \\    /
      hub         Valkey, the servers, the clients
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from extproc.demo.process import Children
from tests.e2e.clustered import Clustered, Hosts, clustered
from tests.e2e.stack import Stack, until
from tests.fakes.networks import MISSING, InNamespace, Networks, is_possible
from tests.fakes.valkey import MISSING as NO_VALKEY
from tests.fakes.valkey import PROGRAM
from tests.long_run import in_long_run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PROGRAM is None, reason=NO_VALKEY),
    in_long_run,
    pytest.mark.skipif(not is_possible(), reason=MISSING),
]

LEASE_S = 4.0
CUT_S = 7.0
"""Longer than a lease, shorter than the patience of fronts."""
PATIENCE_S = 20.0


class Machines(Hosts):
    """Each member in a namespace of its own."""

    def __init__(self, networks: Networks) -> None:
        self.networks = networks
        self.valkey_addresses = tuple(networks.address("hub", by=name) for name in "ab")

    def children(self, name: str, folder: Path) -> Children:
        return InNamespace(folder, self.networks.pid(name))

    def address(self, name: str) -> str:
        return self.networks.address(name, by="b" if name == "a" else "a")

    def valkey_of(self, name: str) -> str:
        return self.networks.address("hub", by=name)

    async def join(self, name: str, stack: Stack) -> None:
        for port in (stack.envoy_port, stack.envoy_admin_port, stack.http_port, stack.grpc_port):
            await self.networks.relay(port, listens="hub", connects=name)
        for server in stack.servers:
            await self.networks.relay(server.port, listens=name, connects="hub")


class Partition:
    """A stack whose links can be cut."""

    def __init__(self, stack: Clustered, networks: Networks) -> None:
        self.stack = stack
        self.networks = networks

    async def run(self, *cuts: tuple[str, str], through: tuple[str, ...], **load: Any) -> None:
        """Offer load, cut these links in the middle for `CUT_S`, and wait for every answer."""

        async def fault() -> None:
            self.stack.broken_at = time.monotonic()
            for link in cuts:
                await self.networks.cut(*link)
            await asyncio.sleep(CUT_S)
            for link in cuts:
                await self.networks.heal(*link)

        await self.stack.run(fault, through=through, length_s=14.0, offered=1.0, **load)

    def numbers(self) -> str:
        return self.stack.account.describe(self.stack.broken_at)

    def assert_none_is_refused_or_over(self) -> None:
        account = self.stack.account
        assert not account.unanswered(), (self.numbers(), account.unanswered()[:3])
        assert not account.over(), self.numbers()
        assert not account.blind(self.stack.broken_at), self.numbers()


@asynccontextmanager
async def partition(tmp_path: Path, **cluster: Any) -> AsyncIterator[Partition]:
    async with Networks() as networks:
        for name in "ab":
            await networks.add(name)
        for number, link in enumerate((("a", "b"), ("a", "hub"), ("b", "hub")), start=1):
            await networks.link(*link, number)
        token = tmp_path / "token"
        token.write_text("a-token")
        settings = {
            "lease_s": LEASE_S,
            "patience_s": PATIENCE_S,
            "token_file": str(token),
            **cluster,
        }
        async with clustered(tmp_path, cluster=settings, hosts=Machines(networks)) as stack:
            yield Partition(stack, networks)


async def test_a_leader_that_is_cut_from_the_engine_leads_on(tmp_path: Path) -> None:
    """Also with `stop`, since all fronts follow it. Nobody notices."""
    async with partition(tmp_path, without_engine="stop") as cluster:
        stack = cluster.stack
        leader = await stack.leader()
        before = (await stack.cluster_of(leader))["epoch"]
        seen: list[bool] = []

        async def look() -> None:
            async def is_out_of_touch() -> bool:
                return not (await stack.cluster_of(leader)).get("is_in_touch", True)

            await until(is_out_of_touch)
            seen.append(True)

        looking = asyncio.create_task(look())
        await cluster.run((leader, "hub"), through=("a", "b"))
        await looking
        assert seen, "the link was cut"
        print(f"\nleader cut from engine: {cluster.numbers()}")  # noqa: T201
        stack.assert_exact()

        async def is_in_touch() -> bool:
            found = await stack.cluster_of(leader)
            if not found.get("is_in_touch"):
                return False
            assert (found["leader"], found["epoch"]) == (leader, before)
            return True

        await until(is_in_touch)


async def test_fronts_that_are_cut_from_the_leader_hold_their_requests(tmp_path: Path) -> None:
    """Both machines reach the engine: the leader goes on with its own front, and the requests of
    the other one wait in their places. None is refused or blind, and no slot is given twice."""
    async with partition(tmp_path, without_engine="stop") as cluster:
        stack = cluster.stack
        leader = await stack.leader()
        await cluster.run(("a", "b"), through=("a", "b"))
        print(f"\nleader cut from the other fronts: {cluster.numbers()}")  # noqa: T201
        cluster.assert_none_is_refused_or_over()
        assert await stack.leader() == leader
        assert stack.account.overtaken(), "those at the other front waited for the link"
        stack.account.traces.clear()
        await stack.until_complete(2)
        await stack.until_calm()


async def test_a_standby_that_is_cut_off_costs_the_leaders_clients_nothing(tmp_path: Path) -> None:
    async with partition(tmp_path, without_engine="stop") as cluster:
        stack = cluster.stack
        leader, other = await stack.leader(), await stack.other()
        await cluster.run(("a", "b"), (other, "hub"), through=(leader,))
        print(f"\nstandby cut from both: {cluster.numbers()}")  # noqa: T201
        cluster.assert_none_is_refused_or_over()
        stack.assert_exact()
        assert await stack.leader() == leader
        await stack.until_complete(2)


async def test_a_leader_that_is_cut_off_stops_before_another_one_leads(tmp_path: Path) -> None:
    """With `stop`. Its own requests wait until the link is back; those of the other machine go on
    after the lease."""
    async with partition(tmp_path, without_engine="stop") as cluster:
        stack = cluster.stack
        leader, other = await stack.leader(), await stack.other()
        await cluster.run(("a", "b"), (leader, "hub"), through=("a", "b"))
        print(f"\nleader cut from both, stop: {cluster.numbers()}")  # noqa: T201
        cluster.assert_none_is_refused_or_over()
        assert await stack.leader() == other
        stack.account.traces.clear()
        await stack.until_complete(2)
        await stack.until_calm()


async def test_with_stay_both_sides_decide(tmp_path: Path) -> None:
    """Each sees the requests of the other one with its next scrape, so some may be over."""
    async with partition(tmp_path, without_engine="stay") as cluster:
        stack = cluster.stack
        leader = await stack.leader()
        await cluster.run(("a", "b"), (leader, "hub"), through=("a", "b"))
        print(f"\nleader cut from both, stay: {cluster.numbers()}")  # noqa: T201
        assert not stack.account.unanswered(), stack.account.unanswered()[:3]
        stack.account.traces.clear()
        await stack.until_complete(2)
        await stack.until_calm()


async def test_the_account_shows_when_fronts_give_up(tmp_path: Path) -> None:
    """The control: without patience the other machine's Envoy goes on blindly."""
    async with partition(tmp_path, without_engine="stop", patience_s=1.0) as cluster:
        stack = cluster.stack
        await cluster.run(("a", "b"), through=("a", "b"))
        print(f"\nleader cut from the other fronts, no patience: {cluster.numbers()}")  # noqa: T201
        assert stack.account.blind(stack.broken_at)
        assert stack.account.over()
