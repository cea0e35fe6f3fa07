"""Members of a cluster die under load, behind real Envoys, with a real Valkey or Redis: nobody is
refused, sent to a server without a free slot, or overtaken. The servers and the clients account for
each request."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from extproc.core.prediction.latency import refresh_s
from extproc.demo.port import free_ports
from extproc.pb import externalscaler_pb2 as scaler_pb
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.pb.externalscaler_pb2_grpc import ExternalScalerStub
from extproc.processes.cluster.valkey import ValkeyEngine
from tests.e2e.clustered import Clustered, clustered
from tests.e2e.pooled_load import PooledLoad
from tests.e2e.stack import Stack, chat, until
from tests.fakes.accounting import CHAT
from tests.fakes.authority import Authority
from tests.fakes.valkey import MISSING, PROGRAM
from tests.long_run import in_long_run

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(PROGRAM is None, reason=MISSING)]


async def lose_engine(stack: Clustered, length_s: float) -> None:
    """It comes back empty, and learns from the leader."""
    leader = await stack.leader()
    epoch = (await stack.cluster_of(leader))["epoch"]
    await stack.run(stack.valkey.kill, through=("a", "b"), length_s=length_s)
    stack.assert_exact()
    await stack.valkey.start()
    await stack.until_complete(2)
    assert await stack.leader() == leader
    assert (await stack.cluster_of(leader))["epoch"] == epoch


async def lose_core(stack: Clustered, length_s: float) -> None:
    """The spare of the same machine takes over, also for the other machine's front."""
    leader = await stack.leader()

    async def fault() -> None:
        [core] = await stack.pids(leader, "core")
        stack.strike(core, signal.SIGKILL)

    await stack.run(fault, through=("a", "b"), length_s=length_s)
    stack.assert_exact()
    assert await stack.leader() == leader


async def lose_leader(stack: Clustered, number: signal.Signals, length_s: float) -> None:
    """The other member takes over; its own Envoy's requests keep their slots and their order."""
    leader, other = await stack.leader(), await stack.other()

    async def fault() -> None:
        if number is signal.SIGTERM:
            stack.strike(stack.pid(leader), number)
        else:
            await stack.strike_all(leader, number)

    await stack.run(fault, through=(other,), length_s=length_s)
    stack.assert_exact()
    if number is signal.SIGSTOP:
        await stack.strike_all(leader, signal.SIGCONT)
        await stack.until_complete(2)
    assert await stack.leader() == other


async def ask_standby(stack: Clustered) -> None:
    """It passes commands and pages on to the leader, and answers for itself where it is meant."""
    leader, other = await stack.leader(), await stack.other()
    standby = stack.members[other]

    async def is_passed_on() -> bool:
        return (await stack.cluster_of(other)).get("member") == leader

    await until(is_passed_on)
    pages = f"http://127.0.0.1:{standby.http_port}"
    for page, said in (("/readyz", f"{leader} leads"), ("/metrics", "coxswain_leader 0")):
        assert said in (await standby.client.get(pages + page)).text
    first = standby.servers[0].address
    async with grpc.aio.insecure_channel(f"127.0.0.1:{standby.admin_port}") as channel:
        admin = AdminStub(channel)
        await admin.Disable(pb.DisableRequest(address=first))
        status = await stack.members[leader].status()
        assert status["endpoints"][first]["intent"] == "disabled"
        await admin.Activate(pb.ActivateRequest(address=first))
    for name in (leader, other):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.keda_ports[name]}") as channel:
            asked = scaler_pb.ScaledObjectRef(name="llama", namespace="default")
            found = await ExternalScalerStub(channel).GetMetricSpec(asked, wait_for_ready=True)
            assert found.metricSpecs, f"KEDA is answered at the member {name}"


async def restart_all(stack: Clustered) -> None:
    """What operators asked for outlives all pickers."""
    leader = stack.members[await stack.leader()]
    drained = leader.servers[0].address
    [port] = free_ports(1)
    added = f"127.0.0.1:{port}"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{leader.admin_port}") as channel:
        admin = AdminStub(channel)
        await admin.AddEndpoint(pb.AddEndpointRequest(address=added, name="by-hand"))
        for address in (drained, added):
            await admin.Disable(pb.DisableRequest(address=address))
    engine = ValkeyEngine("test", [stack.valkey.url], 4.0)

    async def is_kept() -> bool:
        texts = await engine.intents()
        return {drained, added} <= {each for each, text in texts.items() if "disabled" in text}

    await until(is_kept)
    await engine.aclose()
    for name, member in stack.members.items():
        assert member.picker is not None
        if member.picker.is_running:
            await stack.strike_all(name, signal.SIGKILL)
            await member.picker.wait()
        await member.restart_picker()
    await stack.until_complete(2)
    await stack.members[await stack.leader()].until(
        lambda status: (
            all(
                status["endpoints"].get(each, {}).get("intent") == "disabled"
                for each in (drained, added)
            )
            and status["endpoints"][added]["name"] == "by-hand"
        )
    )


async def test_the_engine_a_core_and_a_machine_are_lost_and_nobody_notices(
    tmp_path: Path,
) -> None:
    """Members show each other certificates and a token."""
    pair = Authority(tmp_path).issue("member")
    token = tmp_path / "token"
    token.write_text("a-token")
    secrets = {
        "cert_file": str(pair.cert),
        "key_file": str(pair.key),
        "ca_file": str(tmp_path / "test-authority.pem"),
        "token_file": str(token),
    }
    async with clustered(tmp_path, cluster=secrets, has_keda=True) as stack:
        await ask_standby(stack)
        await lose_engine(stack, 2.0)
        await lose_core(stack, 2.0)
        await stack.until_calm()
        await lose_leader(stack, signal.SIGKILL, 3.0)
        await stack.until_calm()
        await restart_all(stack)


@in_long_run
async def test_a_machine_that_is_lost_with_its_queue_refuses_nobody(tmp_path: Path) -> None:
    """Both Envoys know both members. The places of requests at the leader's own front are lost with
    the machine, so they come last."""
    async with clustered(tmp_path, is_shared=True) as stack:
        leader, other = await stack.leader(), await stack.other()

        async def fault() -> None:
            await stack.strike_all(leader, signal.SIGKILL)

        await stack.run(fault, through=("a", "b"))
        assert not stack.account.unanswered(), stack.account.unanswered()[:3]
        assert not stack.account.over(), stack.account.describe(stack.broken_at)
        assert await stack.leader() == other
        await stack.until_calm()


@in_long_run
async def test_the_account_shows_when_all_members_are_lost(tmp_path: Path) -> None:
    """The control: Envoy goes on blindly, and the measurement says so."""
    async with clustered(tmp_path) as stack:

        async def fault() -> None:
            for name in ("a", "b"):
                await stack.strike_all(name, signal.SIGKILL)

        await stack.run(fault, through=("a", "b"))
        assert stack.account.blind(stack.broken_at)
        assert stack.account.over()


PROMPTS = [chat(4, content=f"{number} oars " * 200) for number in range(6)]


async def saved_s(stack: Clustered, name: str) -> dict[tuple[int, str], float]:
    """How much time a member expects to save at each endpoint, by its prompt cache, for each of
    `PROMPTS`."""
    found = {}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.members[name].admin_port}") as channel:
        for number, prompt in enumerate(PROMPTS):
            request = pb.ExplainRequest(body=json.dumps(prompt).encode())
            for each in (await AdminStub(channel).Explain(request)).candidates:
                scores = {score.name: score.value for score in each.scores}
                found[number, each.address] = scores["saved_s"]
    return found


async def test_what_was_learned_is_at_the_machine_that_takes_over(tmp_path: Path) -> None:
    async with clustered(tmp_path, settings={"routing": {}}, simulators=(2, 2, 2)) as stack:
        leader, other = await stack.leader(), await stack.other()
        standby = stack.members[other]
        page = f"http://127.0.0.1:{standby.http_port}/readyz"
        before: dict[tuple[int, str], float] = {}
        new_at = 0.0

        async def has_heard() -> bool:
            """The leader speaks four times a second, of all that is new in such a small fleet. Its
            own estimates are of all that it has learned only when they are new again."""
            text = (await standby.client.get(page)).text
            found = re.search(r"said ([0-9.]+) s ago what it learns", text)
            return found is not None and time.monotonic() - float(found[1]) > new_at

        async def saves() -> bool:
            """On a busy machine, what was learned from two requests of a server may be noise, and
            more are needed."""
            nonlocal before, new_at
            for prompt in PROMPTS:
                answer = await standby.client.post(standby.url(CHAT), json=prompt)
                assert answer.status_code == 200, answer.text
            await stack.until_calm()
            new_at = time.monotonic() + refresh_s(len(standby.servers))
            await until(has_heard)
            before = await saved_s(stack, leader)
            return sum(value > 0.01 for value in before.values()) >= len(PROMPTS)

        await until(saves)
        await stack.strike_all(leader, signal.SIGKILL)

        async def has_taken_over() -> bool:
            return await stack.leader() == other

        await until(has_taken_over)

        async def has_learned() -> bool:
            """What does not fit into `LEARN_S` is learned between requests."""
            return await saved_s(stack, other) == pytest.approx(before, rel=0.01, abs=0.001)

        await until(has_learned)


async def test_the_ports_of_pools_hold_when_the_leader_is_lost(tmp_path: Path) -> None:
    """Each member has a port of its own for a pool. What runs, waits or comes at the port of the
    member that stays is served in that pool, whichever leads."""
    ports: dict[str, int] = {}
    names = ("batch", "chat")

    def own(stack: Stack) -> dict[str, Any]:
        [ports[stack.folder.name]] = free_ports(1)
        pools = {"chat": {"default": True}, "batch": {"port": ports[stack.folder.name]}}
        servers = zip(stack.servers, names, strict=True)
        endpoints = [{"address": one.address, "name": n, "in_pool": n} for one, n in servers]
        return {"pools": pools, "endpoints": endpoints}

    async with clustered(tmp_path, simulators=(1, 1), own_settings=own) as stack:
        leader, other = await stack.leader(), await stack.other()
        member = stack.members[other]
        ours, its = f"port_value: {member.grpc_port}", f"port_value: {ports[other]}"
        batch = await member.start_another_envoy(alter=lambda text: text.replace(ours, its))
        urls = {"batch": f"{batch}{CHAT}", "chat": member.url(CHAT)}

        async def is_served() -> bool:
            try:
                return (await member.client.get(f"{batch}/v1/models")).status_code == 200
            except httpx.TransportError:
                return False

        def served_by(answer: httpx.Response) -> str:
            return str(answer.headers.get("x-coxswain-endpoint", ""))

        async def leads() -> bool:
            return (await stack.cluster_of(other)).get("leader") == other

        load = PooledLoad(member.client, urls, served_by)
        await until(is_served)
        async with load.running():
            await load.until_served()
            await stack.strike_all(leader, signal.SIGKILL)
            await load.until_served()
            await until(leads)
            await load.until_served()
    assert {name: set(found) for name, found in load.answers.items()} == {
        name: {(200, name)} for name in names
    }
