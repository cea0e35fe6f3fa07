"""Members of a cluster as processes, each behind an Envoy of its own, before the same servers that
account for requests, with a real Valkey or Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from extproc.demo.port import free_ports
from extproc.demo.process import Children
from tests.e2e.fronted import MEAN_S, SLOTS
from tests.e2e.kept import all_pids
from tests.e2e.stack import Server, Stack, until
from tests.fakes.accounting import CHAT, Account, AccountingServer, load, telling_when_read
from tests.fakes.http_client import Client
from tests.fakes.valkey import Valkey

FRONTS = 1


class Clustered:
    """The members by name, and what is common to them."""

    def __init__(self, valkey: Valkey, account: Account) -> None:
        self.valkey = valkey
        self.account = account
        self.members: dict[str, Stack] = {}
        self.keda_ports: dict[str, int] = {}
        self.broken_at = 0.0
        """When the fault was made."""

    async def cluster_of(self, name: str) -> dict[str, Any]:
        """What a member says of the cluster; empty while it does not answer."""
        try:
            status = await self.members[name].status()
        except (httpx.TransportError, ValueError):
            return {}
        found: dict[str, Any] = (status.get("processes") or {}).get("cluster") or {}
        return found

    async def leader(self) -> str:
        """The name of the member that leads, once one does."""
        found = ""

        async def is_led() -> bool:
            nonlocal found
            for name, stack in self.members.items():
                if stack.picker is not None and stack.picker.is_running:
                    found = (await self.cluster_of(name)).get("leader", "")
                    if found in self.members:
                        return True
            return False

        await until(is_led)
        return found

    async def other(self) -> str:
        leader = await self.leader()
        return next(name for name in self.members if name != leader)

    async def until_complete(self, members: int) -> None:
        """Wait until a leader knows so many members, with all their fronts."""

        async def is_complete() -> bool:
            found = await self.cluster_of(await self.leader())
            fronts = [each["fronts"] for each in found.get("members", [])]
            return fronts == [FRONTS] * members

        await until(is_complete)

    def pid(self, name: str) -> int:
        picker = self.members[name].picker
        assert picker is not None
        return picker.pid

    async def pids(self, name: str, role: str) -> list[int]:
        processes = (await self.members[name].status())["processes"]
        return [each["pid"] for each in processes["members"] if each["role"] == role]

    async def all_pids(self, name: str) -> list[int]:
        """The supervisor and its processes."""
        supervisor = self.pid(name)
        return [supervisor, *(pid for pid in all_pids() if parent_of(pid) == supervisor)]

    async def strike_all(self, name: str, number: signal.Signals) -> None:
        """A whole machine: every process of a member at once."""
        pids = await self.all_pids(name)
        self.broken_at = time.monotonic()
        for pid in pids:
            os.kill(pid, number)

    def strike(self, pid: int, number: signal.Signals) -> None:
        self.broken_at = time.monotonic()
        os.kill(pid, number)

    async def run(
        self,
        fault: Callable[[], Awaitable[None]],
        *,
        through: tuple[str, ...],
        offered: float = 1.2,
        length_s: float = 6.0,
        seed: int = 1,
    ) -> None:
        """Offer load through the Envoys of these members, make the fault in the middle, and wait
        for every answer."""
        urls = [self.members[name].url(CHAT) for name in through]
        await load(
            self.account,
            urls,
            rate=offered * sum(SLOTS) / MEAN_S,
            mean_s=MEAN_S,
            length_s=length_s,
            seed=seed,
            halfway=fault,
        )

    def assert_exact(self, *, is_front_lost: bool = False) -> None:
        """Responses that run through a lost front do not name their endpoint, as if the picker had
        not been asked."""
        text = self.account.describe(self.broken_at)
        assert not self.account.unanswered(), (text, self.account.unanswered()[:3])
        assert not self.account.over(), text
        assert is_front_lost or not self.account.blind(self.broken_at), text
        assert not self.account.overtaken(), text
        self.account.traces.clear()

    async def until_served(self) -> None:
        """Wait until each Envoy asks a picker."""
        for stack in self.members.values():
            assert stack.envoy is not None
            await stack.envoy.wait_ready(lambda stack=stack: _is_served(stack), timeout_s=60)  # type: ignore[misc]

    async def until_calm(self) -> None:
        """No lease, no queued request and no exchange is left."""

        async def is_calm() -> bool:
            try:
                status = await self.members[await self.leader()].status()
            except (httpx.TransportError, ValueError):
                return False
            slots = status["slots"]
            return not (status["exchanges"] or slots["leased"] or slots["foreign"])

        await until(is_calm)


class Hosts:
    """Where the members run: all on this machine."""

    valkey_addresses: tuple[str, ...] = ()

    def children(self, name: str, folder: Path) -> Children:
        return Children(folder)

    def address(self, name: str) -> str:
        """Where the other members reach this one."""
        return "127.0.0.1"

    def valkey_of(self, name: str) -> str:
        """Where this member reaches Valkey."""
        return "127.0.0.1"

    async def join(self, name: str, stack: Stack) -> None:
        """Before the first process of a member starts."""


def parent_of(pid: int) -> int:
    """The process that has started it; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[1])


@asynccontextmanager
async def clustered(
    folder: Path,
    *,
    members: tuple[str, ...] = ("a", "b"),
    settings: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    is_shared: bool = False,
    headers: dict[str, str] | None = None,
    hosts: Hosts | None = None,
    simulators: tuple[int, ...] = (),
    has_keda: bool = False,
    own_settings: Callable[[Stack], dict[str, Any]] = lambda _: {},
) -> AsyncIterator[Clustered]:
    """Everything up and ready, everything gone afterwards. An Envoy `is_shared` if it knows all
    members, and not its own alone. `headers` are those of the stack's own requests. `simulators`
    are the slots of servers that cache prompts, in place of those that account for requests. With
    `has_keda` each member has a port for KEDA. `own_settings` are those of one member."""
    hosts = hosts or Hosts()
    account = Account()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with AsyncExitStack() as exits:
        servers = [
            await exits.enter_async_context(AccountingServer(account, count))
            for count in (() if simulators else SLOTS)
        ]
        valkey = await exits.enter_async_context(Valkey(folder, hosts.valkey_addresses))
        client = await exits.enter_async_context(Client(timeout=60, limits=limits, headers=headers))
        found = Clustered(valkey, account)
        for name in members:
            own = folder / name
            own.mkdir()
            children = await exits.enter_async_context(hosts.children(name, own))
            stack = Stack(own, children, client)
            stack.servers += [Server(each.port, each.slots, [], client) for each in servers]
            if name == members[0]:
                for count in simulators:
                    await stack.add_server(count, kind="simulator", start=False)
                await asyncio.gather(*map(stack.start_server, stack.servers if simulators else ()))
            elif simulators:
                stack.servers += found.members[members[0]].servers
            found.members[name] = stack
            await hosts.join(name, stack)
        for name, stack in found.members.items():
            port, keda = free_ports(2)
            found.keda_ports[name] = keda
            others = [
                f"127.0.0.1:{other.grpc_port}"
                for other in found.members.values()
                if is_shared and other is not stack
            ]
            config = {
                "fronts": FRONTS,
                "routing": {"read_body": "never"},
                "envoy": {"message_timeout_s": 1.0, "other_pickers": others},
                "cluster": {
                    "name": "test",
                    "valkey": f"redis://{hosts.valkey_of(name)}:{valkey.port}",
                    "advertise": f"{hosts.address(name)}:{port}",
                    "member": name,
                    "lease_s": 4.0,  # on a busy machine an answer may take a second
                    **(cluster or {}),
                },
                **({"keda": {"listen": f"127.0.0.1:{keda}"}} if has_keda else {}),
                **(settings or {}),
                **own_settings(stack),
            }
            await stack.start_picker(config)
        for stack in found.members.values():
            await stack.start_envoy(alter=telling_when_read)
        await found.until_complete(len(members))
        await found.until_served()
        yield found


async def _is_served(stack: Stack) -> bool:
    """Whether the picker answers through this member's Envoy."""
    try:
        answer = await stack.client.post(stack.url(CHAT), json={"messages": []})
    except (httpx.TransportError, OSError):
        return False
    return answer.status_code == 200 and "x-coxswain-endpoint" in answer.headers
