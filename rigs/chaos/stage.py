"""The processes of a run: pickers with their Envoys, before a fleet of servers."""

import asyncio
import json
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx

from extproc.demo.process import Probe, until
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from rigs.chaos.fleet import Fleet
from rigs.chaos.member import HOST, READY_S, Engine, Member
from rigs.chaos.processes import of_pickers
from rigs.chaos.records import Leftover
from rigs.chaos.security import CLIENT_KEY, Security

MEMBERS = ("a", "b")
FIT = ("ready", "degraded")
"""The health of servers that get requests."""
PATIENCE_S = 30.0
"""Of fronts without a leader: a takeover on a busy rig is no cluster without leaders."""


class Stage(Fleet):
    """Add servers, then `begin`."""

    def __init__(
        self,
        folder: Path,
        *,
        mode: str,
        settings: dict[str, Any],
        security: Security | None = None,
        fronts: int = 0,
        is_cluster: bool = False,
    ) -> None:
        """`is_cluster`: two members with fronts, an engine, and an Envoy for each, which knows
        both."""
        super().__init__(folder, security)
        self.fronts = fronts
        self.mode = mode
        key = {"authorization": f"Bearer {CLIENT_KEY}"} if security else {}
        self.engine = Engine(folder, self.start) if is_cluster else None
        self.members = [
            Member(name, folder, self.http, self.start, key)
            for name in (MEMBERS if is_cluster else ("",))
        ]
        self.admins = [member.admin for member in self.members]
        self._settings = settings

    # The pickers and their Envoys

    async def begin(self) -> None:
        """Start everything before the servers, and wait until the picker finds each server ready
        and all members are there."""
        self.list_servers()
        self._write_settings()
        if self.engine is not None:
            await self.engine.start()
        await asyncio.gather(*(member.start_picker() for member in self.members))
        for server in self.servers:
            if server.has_agent:
                await self.start_agent(server)
        await asyncio.gather(*(member.start_envoy(self.mode) for member in self.members))
        await self._until(self._has_ready_servers)
        if self.fronts:
            await self.until_complete()

    def _write_settings(self) -> None:
        shared = [
            {
                "discovery": {"file": str(self.listing)},
                "envoy": {"discovery": self.mode != "original-dst"},
                "log": {"format": "json"},
                "fronts": self.fronts,
            },
            self.security.settings() if self.security else {},
            self._settings,
        ]
        for member in self.members:
            member.settings(*shared, self._membership(member))

    def _membership(self, member: Member) -> dict[str, Any]:
        if self.engine is None:
            return {}
        secured = self.security
        others = [f"{HOST}:{one.grpc}" for one in self.members if one is not member]
        return {
            "cluster": {
                "name": "chaos",
                "valkey": self.engine.url,
                "member": member.name,
                "advertise": f"{HOST}:{member.peers}",
                "patience_s": PATIENCE_S,
                **(secured.member_settings() if secured else {}),
            },
            "envoy": {"picker": f"{HOST}:{member.grpc}", "other_pickers": others},
        }

    async def _has_ready_servers(self) -> bool:
        endpoints = (await self.status())["endpoints"]
        return all(
            endpoints.get(server.address, {}).get("health") in FIT for server in self.servers
        )

    async def until_known(self) -> None:
        """Wait until a picker that was lost knows the fleet again, and Envoy knows it."""

        async def is_known() -> bool:
            status = await self.status()
            is_met = bool(status["envoys"]) or self.mode == "original-dst"
            return is_met and any(one["health"] in FIT for one in status["endpoints"].values())

        await self._until(is_known)

    async def until_complete(self, lost: int = 0) -> None:
        """Wait until all processes of all pickers are there again, and the lost one is not."""

        async def is_complete() -> bool:
            status = await self.status()
            found = _processes(status)
            roles = [role for role, pid in found if pid != lost]
            return (
                len(roles) == len(found)
                and sorted(roles) == sorted(["core", "spare", *["front"] * self.fronts])
                and (self.engine is None or await self._are_joined(status, lost))
            )

        await self._until(is_complete)

    async def _are_joined(self, status: dict[str, Any], lost: int) -> bool:
        """Whether each member leads or stands by, with all its fronts."""
        fronts = {one["name"]: one["fronts"] for one in _cluster(status).get("members", ())}
        if fronts != dict.fromkeys((one.name for one in self.members), self.fronts):
            return False
        if any(lost in one.processes() for one in self.members):
            return False
        return all(await asyncio.gather(*(one.pages.is_ready() for one in self.members)))

    async def _until(self, is_so: Probe) -> None:
        """Wait until it is so; while no picker answers, it is not."""

        async def holds() -> bool:
            with suppress(httpx.HTTPError, ValueError):
                return await is_so()
            return False

        async with asyncio.timeout(READY_S):
            await until(holds)

    # What can be seen

    def envoy_logs(self) -> list[Path]:
        return [log for member in self.members for log in member.envoy_logs]

    def picker_logs(self) -> list[Path]:
        return [log for member in self.members for log in member.picker_logs]

    async def leader(self) -> Member:
        """The member that leads, once one does."""
        found: list[Member] = []

        async def is_led() -> bool:
            name = _cluster(await self.status()).get("leader")
            found[:] = [one for one in self.members if one.name == name and one.is_running]
            return bool(found)

        await self._until(is_led)
        return found[0]

    async def processes(self) -> dict[int, str]:
        """All processes of all pickers by id, with their roles: "core" is the one that decides,
        other cores are spares. None while no core answers."""
        found = {pid: role for one in self.members for pid, role in one.processes().items()}
        if not self.fronts:
            return dict.fromkeys(found, "core")
        try:
            status = await self.status()
        except (httpx.HTTPError, ValueError):
            return {}
        spares = {pid: "spare" for pid, role in found.items() if role == "core"}
        cores = {pid: role for role, pid in _processes(status) if role == "core"}
        return {**found, **spares, **cores}

    async def pids(self, role: str) -> list[int]:
        """The processes of this role."""
        return sorted(pid for pid, one in (await self.processes()).items() if one == role)

    async def core_pid(self) -> int:
        """The process that decides, once all are there."""
        if self.fronts:
            await self.until_complete()
        [pid] = await self.pids("core")
        return pid

    async def status(self) -> dict[str, Any]:
        """Of the picker that decides, from the first member that answers. Raises
        `httpx.HTTPError` and `ValueError` if none does."""
        asked = [asyncio.ensure_future(one.pages.status()) for one in self.members]
        try:
            for answer in asyncio.as_completed(asked):
                with suppress(httpx.HTTPError, ValueError):
                    return await answer
            raise httpx.ConnectError("no picker answers")
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def metric(self, name: str) -> float | None:
        """The sum over all pickers that have it; None where none has. Raises `httpx.HTTPError`
        without an answer."""
        found = [await one.pages.metric(name) for one in self.members]
        known = [value for value in found if value is not None]
        return sum(known) if known else None

    async def envoy_stats(self) -> Counter[str]:
        """Of all Envoys together."""
        total: Counter[str] = Counter()
        for member in self.members:
            total.update(await member.envoy_stats())
        return total

    async def census(self, pid: int) -> dict[str, int]:
        """What lives in a process of a picker. Raises `ProcessLookupError` if it is gone."""
        self.census_file.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)

        async def is_written() -> bool:
            os.kill(pid, 0)
            return self.census_file.exists()

        await self._until(is_written)
        found: dict[str, int] = json.loads(self.census_file.read_text())
        return found

    def admin_stub(self, number: int = 0) -> tuple[grpc.aio.Channel, AdminStub]:
        """An operator's connection, to that member; close the channel."""
        address = f"{HOST}:{self.members[number % len(self.members)].admin}"
        if self.security is not None:
            channel = self.security.channel(address)
        else:
            channel = grpc.aio.insecure_channel(address)
        return channel, AdminStub(channel)

    async def stop(self) -> list[Leftover]:
        """End Envoys and pickers in peace, so that their logs are complete; the processes of
        pickers that are left."""
        for member in self.members:
            await member.stop()
        return [Leftover(what="process of a picker", value=pid) for pid in of_pickers(self.folder)]

    async def aclose(self) -> None:
        """End all that was started."""
        async with self.children:
            for server in self.servers:
                await server.front.close()
            await self.http.aclose()


def _processes(status: dict[str, Any]) -> list[tuple[str, int]]:
    """Those of the member that answered: role and process id."""
    processes = status.get("processes") or {"members": []}
    return [(one["role"], one["pid"]) for one in processes["members"]]


def _cluster(status: dict[str, Any]) -> dict[str, Any]:
    """What the member that answered knows of its cluster; empty while it knows of none."""
    return (status.get("processes") or {}).get("cluster") or {}
