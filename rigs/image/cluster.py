"""The profile `cluster` of the compose stack: two pickers that are one, each with its Envoy."""

import asyncio
import json
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rigs.image.clients import clients
from rigs.image.engine import ImageTestError
from rigs.image.stack import ROOT, Stack, is_served

ENVOYS: Final = ("http://127.0.0.1:10000", "http://127.0.0.1:10001")
MEMBERS: Final = ("coxswain-a", "coxswain-b")
FRONTS: Final = 2
CLIENTS: Final = 7
"""At each Envoy: together more than the eight slots."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Each method is a step, after the single stack is removed; it raises `ImageTestError`."""

    stack: Stack

    async def up(self) -> None:
        """Start it with the command of docs/cluster.md."""
        await asyncio.to_thread(self.stack.docker.command, ["sh", "-ec", up_command()], cwd=ROOT)
        leader = await self._until_whole()
        for envoy in ENVOYS:
            serves = partial(is_served, f"{envoy}/v1/models")
            await self.stack.until(serves, f"{envoy} does not serve")
        self.stack.report(f"the cluster is up: {leader} leads, and both Envoys serve")

    async def lose_leader(self) -> None:
        """Kill the container of the member that leads, under load, and start it again."""
        leader = await self._until_whole()
        (other,) = (member for member in MEMBERS if member != leader)
        async with clients(CLIENTS, ENVOYS) as load:
            await load.wait_served(2 * CLIENTS)
            await self.stack.compose("kill", "--signal", "SIGKILL", leader)

            async def has_taken_over() -> bool:
                return (await self._cluster(other)).get("leader") == other

            await self.stack.until(has_taken_over, f"{other} does not lead")
            await load.wait_served(4 * CLIENTS)
            self.stack.report(f"killed the container of {leader} under load: {other} leads")
            await self.stack.compose("start", leader)
            assert await self._until_whole() == other
            await load.wait_served(4 * CLIENTS)
        shown = await self.stack.compose("exec", "-T", other, "coxswain", "members")
        for member, role in ((leader, "standby"), (other, "leader")):
            if not re.search(rf"^{member} +{role} ", shown, re.MULTILINE):
                raise ImageTestError(f"`coxswain members` does not say that {member} is:\n{shown}")
        done = f"started it again as standby: {load.served} served, {load.retries} retried"
        self.stack.check(load.failures, done)

    async def end(self) -> None:
        """Stop everything; both members ended by themselves."""
        await self.stack.end_pickers(*MEMBERS)
        self.stack.report("stopped the cluster: both members ended with 0, no log has a traceback")

    async def _until_whole(self) -> str:
        """Wait until both members are there with all their fronts; the one that leads."""
        found: dict[str, Any] = {}

        async def is_whole() -> bool:
            nonlocal found
            found = await self._cluster(MEMBERS[0])
            members = {each["name"]: each["fronts"] for each in found.get("members", [])}
            return bool(found.get("leader")) and members == dict.fromkeys(MEMBERS, FRONTS)

        await self.stack.until(is_whole, "the cluster is not whole")
        return str(found["leader"])

    async def _cluster(self, member: str) -> dict[str, Any]:
        """What `coxswain members` says there; empty while it says nothing."""
        try:
            said = await self.stack.compose(
                "exec", "-T", member, "coxswain", "members", "--output", "json"
            )
        except ImageTestError:
            return {}
        found: dict[str, Any] = json.loads(said)
        return found


def up_command() -> str:
    """The line of docs/cluster.md that starts the profile."""
    page = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^docker compose --profile cluster up .*$", page, re.MULTILINE)
    return str(line)
