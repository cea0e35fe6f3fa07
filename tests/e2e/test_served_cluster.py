"""The cluster that the picker serves, over the real Envoy: servers of CAs that nobody
knew when Envoy started are used at once, under load, and nobody else's word counts for them."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from extproc.app.agent import AgentPlan, plan_agent
from extproc.app.service import Service
from extproc.core.fleet.endpoint import Intent
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.snippet import snippet
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from scraper.agent import Agent
from tests.e2e.foreign_envoy import dropped_in
from tests.e2e.one_process import Running, running, server_side
from tests.e2e.secured import KEY, Secured, secured, write
from tests.e2e.steady_load import COMPLETION, answers, ask, load_on
from tests.fakes.authority import Authority, strange
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.picker import until
from tests.fakes.wiretap import Wiretap

pytestmark = pytest.mark.e2e

LONG = "/long.js"


async def is_trusted(stack: Running, authority: str) -> bool:
    """Whether Envoy holds this authority's certificate, by its serial number."""
    answer = await stack.client.get(f"http://{stack.settings.envoy.admin}/certs")
    held = [ca for entry in answer.json()["certificates"] for ca in entry["ca_cert"]]
    return any(ca["serial_number"].lstrip("0") == authority for ca in held)


async def until_trusted(stack: Running, authority: str, *, is_so: bool = True) -> None:
    async with asyncio.timeout(20):
        while await is_trusted(stack, authority) is not is_so:  # noqa: ASYNC110  # Envoy's
            await asyncio.sleep(0.05)


async def test_a_server_of_new_cas_is_added_under_load(tmp_path: Path) -> None:
    """With its key, by the endpoints file: no new configuration, no restart, no failed request;
    an answer that is on its way meanwhile comes to its end."""
    file = tmp_path / "fleet.json"
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        answers(plain, secret.server)
        gate = asyncio.Event()
        plain.replies[LONG] = Reply(body=b"{}", gate=gate)
        write(file, str(plain.address))
        async with running(tmp_path, {"discovery": {"file": str(file)}}) as stack:
            held = asyncio.create_task(stack.client.get(LONG, timeout=30))
            await plain.was_asked(LONG)
            async with load_on(stack) as load:
                await load.grows(5, plain.address)
                write(file, str(plain.address), secret.named)
                await load.grows(5, secret.tap.address)
                await load.grows(5, plain.address)
                write(file, secret.named)
                await load.grows(5, secret.tap.address)
                gate.set()
                assert (await held).status_code == 200
        assert secret.tap.in_the_clear == []
        assert secret.served >= 10


async def test_an_envoy_with_the_printed_parts_may_have_it_too(tmp_path: Path) -> None:
    """One that was there before, without discovery of clusters of its own."""

    def parts(options: EnvoyOptions) -> str:
        return dropped_in(snippet(options, serves_cluster=True), options)

    file = tmp_path / "fleet.json"
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        answers(plain, secret.server)
        write(file, str(plain.address))
        values = {"discovery": {"file": str(file)}}
        async with running(tmp_path, values, printed=parts) as stack:
            async with load_on(stack) as load:
                await load.grows(5, plain.address)
                write(file, str(plain.address), secret.named)
                await load.grows(5, secret.tap.address)
            assert secret.server.newest(COMPLETION).headers["authorization"] == f"Bearer {KEY}"
            assert secret.tap.in_the_clear == []


async def test_another_file_of_cas_is_taken_under_load(tmp_path: Path) -> None:
    """First both, then the server shows the new one's certificate, then only the new one: as
    certificates are renewed. Envoy needs the file no more than the one before."""
    async with secured(tmp_path) as secret:
        answers(secret.server)
        fresh = Authority(tmp_path, "fresh")
        context = secret.server.tls
        assert context is not None
        async with running(tmp_path, {"endpoints": [secret.named]}) as stack:
            async with load_on(stack) as load:
                await load.grows(5, secret.tap.address)
                old = secret.authority.ca.read_bytes()
                secret.authority.ca.write_bytes(old + fresh.ca.read_bytes())
                await until_trusted(stack, fresh.serial)
                pair = fresh.issue("renewed")
                context.load_cert_chain(pair.cert, pair.key)
                await load.grows(5, secret.tap.address)
                secret.authority.ca.write_bytes(fresh.ca.read_bytes())
                await until_trusted(stack, secret.authority.serial, is_so=False)
                await load.grows(5, secret.tap.address)
            again = server_side(secret.authority.issue("again"))
            async with FakeLlamaServer(tls=again) as late:
                secret.tap.target = late.address
                secret.tap.break_connections()  # one may be left of a request that was given up
                assert (await stack.client.get("/props?mine=1")).status_code == 503
                assert late.asked == []
            assert secret.tap.in_the_clear == []


async def test_cas_that_envoy_rejects_hold_up_nobody_else(tmp_path: Path) -> None:
    """A server that comes with such a file waits and says why; the others are served, and whoever
    comes later is taken. Once its file is fixed, so is it."""
    file = tmp_path / "fleet.json"
    async with (
        secured(tmp_path) as one,
        secured(tmp_path, "odd") as odd,
        secured(tmp_path, "late") as late,
    ):
        answers(one.server, odd.server, late.server)
        good = odd.authority.ca.read_bytes()
        odd.authority.ca.write_bytes(strange(good))
        write(file, one.named, odd.named)
        async with running(tmp_path, {"discovery": {"file": str(file)}}) as stack:
            async with load_on(stack) as load:
                await load.grows(5, one.tap.address)
                assert codes(stack, odd) == ["envoy-rejects-ca"]
                assert not stack.endpoint(odd.tap.address).is_pickable
                write(file, one.named, odd.named, late.named)
                await load.grows(5, late.tap.address)
                assert odd.served == 0
                odd.authority.ca.write_bytes(good)
                await load.grows(5, odd.tap.address)
                assert codes(stack, odd) == []
            assert one.tap.in_the_clear == odd.tap.in_the_clear == late.tap.in_the_clear == []


async def test_a_renewed_file_that_envoy_rejects_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    """The server goes on, with an issue; nobody else's news wait for it."""
    file = tmp_path / "fleet.json"
    async with secured(tmp_path) as one, secured(tmp_path, "late") as late:
        answers(one.server, late.server)
        write(file, one.named)
        async with running(tmp_path, {"discovery": {"file": str(file)}}) as stack:
            async with load_on(stack) as load:
                await load.grows(5, one.tap.address)
                fresh = Authority(tmp_path, "fresh")
                one.authority.ca.write_bytes(
                    one.authority.ca.read_bytes() + strange(fresh.ca.read_bytes())
                )
                await until(lambda: codes(stack, one) == ["envoy-keeps-previous-ca"])
                assert stack.endpoint(one.tap.address).is_pickable
                write(file, one.named, late.named)
                await load.grows(5, late.tap.address)
                await load.grows(5, one.tap.address)
            impostor = server_side(fresh.issue("impostor"))
            async with FakeLlamaServer(tls=impostor) as other:
                answers(other)
                one.tap.target = other.address
                one.tap.break_connections()
                for _ in range(3):
                    await ask(stack.client)
                assert other.count(COMPLETION) == 0, "Envoy never heard of who signed for it"
            assert one.tap.in_the_clear == late.tap.in_the_clear == []


def codes(stack: Running, secret: Secured) -> list[str]:
    return [issue.code for issue in stack.endpoint(secret.tap.address).issues]


async def test_cas_speak_for_their_own_servers_only(tmp_path: Path) -> None:
    """Envoy holds those of two servers; the certificate of one does not open the way for the
    other, not even with the right name in it."""
    async with secured(tmp_path) as one, secured(tmp_path, "other") as other:
        answers(one.server, other.server)
        async with running(tmp_path, {"endpoints": [one.named, other.named]}) as stack:
            both = [stack.endpoint(secret.tap.address) for secret in (one, other)]
            await until(lambda: all(endpoint.is_pickable for endpoint in both))
            one.tap.target = other.server.address
            one.tap.break_connections()
            assert (await ask(stack.client)).headers["x-coxswain-endpoint"] == str(
                other.tap.address
            )
            await until(lambda: not stack.endpoint(one.tap.address).is_serving)
            async with asyncio.timeout(20):  # its health check at the latest
                while not await stack.statistic("ssl.fail_verify_error"):  # noqa: ASYNC110  # Envoy's
                    await asyncio.sleep(0.05)
            assert one.tap.in_the_clear == other.tap.in_the_clear == []


async def test_an_operator_adds_one_of_new_cas(tmp_path: Path) -> None:
    """Over the admin port, by its IP address, with a key: nothing was said of any before."""
    keys = tmp_path / "keys"
    keys.mkdir()
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        answers(plain, secret.server)
        secret.key_file.rename(keys / "key")
        values = {"endpoints": [str(plain.address)], "admin": {"api_key_folder": str(keys)}}
        named = {**secret.named, "server_name": "", "api_key_file": str(keys / "key")}
        async with (
            running(tmp_path, values) as stack,
            grpc.aio.insecure_channel(f"127.0.0.1:{stack.service.admin_port}") as channel,
        ):
            admin = AdminStub(channel)
            await admin.AddEndpoint(pb.AddEndpointRequest(**named))
            await until(lambda: stack.endpoint(secret.tap.address).is_pickable)
            await admin.Disable(pb.DisableRequest(address=str(plain.address)))
            mine = {"authorization": "Bearer of-a-client"}
            answer = await stack.client.post(f"{COMPLETION}?mine=1", json={}, headers=mine)
            assert answer.headers["x-coxswain-endpoint"] == str(secret.tap.address)
            assert (
                secret.server.newest(COMPLETION).headers["authorization"] != mine["authorization"]
            )
            await admin.Activate(pb.ActivateRequest(address=str(plain.address)))
            await admin.Disable(pb.DisableRequest(address=str(secret.tap.address)))
            await stack.client.post(f"{COMPLETION}?mine=1", json={}, headers=mine)
            assert plain.newest(COMPLETION).headers["authorization"] == mine["authorization"]
            assert secret.tap.in_the_clear == []


async def test_a_picker_that_starts_again_changes_nothing_at_envoy(tmp_path: Path) -> None:
    """It writes the same cluster again, so no server is withheld meanwhile."""
    async with secured(tmp_path) as secret, AsyncExitStack() as exits:
        answers(secret.server)
        async with running(tmp_path, {"endpoints": [secret.named]}) as stack:
            assert (await ask(stack.client)).status_code == 200
            updates = await updated(stack)
            await stack.service.stop()
            assert (await stack.client.get("/props?mine=1")).status_code == 200
            stack.service = Service(stack.settings)
            await stack.service.start()
            exits.push_async_callback(stack.service.stop)
            async with asyncio.timeout(20):
                while "x-coxswain-endpoint" not in (await ask(stack.client)).headers:
                    pass
            assert await updated(stack) == updates
            assert secret.tap.in_the_clear == []


async def updated(stack: Running) -> tuple[str, ...]:
    """How often Envoy took another cluster."""
    answer = await stack.client.get(f"http://{stack.settings.envoy.admin}/stats")
    kinds = ("cluster_manager.cluster_added", "cluster_manager.cluster_modified")
    return tuple(line for line in answer.text.splitlines() if line.startswith(kinds))


async def test_a_server_is_scraped_again_by_each_connection(tmp_path: Path) -> None:
    """One that showed its certificate for its own name cannot go on from there as another one,
    though both share their CAs and Envoy's profile."""
    authority = Authority(tmp_path)
    pairs = [authority.issue(name, hosts=(name,)) for name in ("one.test", "two.test")]
    async with (
        FakeLlamaServer(tls=server_side(pairs[0])) as one,
        FakeLlamaServer(tls=server_side(pairs[1])) as two,
        Wiretap(one.address) as tap_one,
        Wiretap(two.address) as tap_two,
    ):
        answers(one, two)
        named = [
            {"address": f"https://{tap.address}", "ca_file": str(authority.ca), "server_name": name}
            for tap, name in ((tap_one, "one.test"), (tap_two, "two.test"))
        ]
        # Who knows already that nobody is left does not wait for it.
        values = {"endpoints": named, "queue": {"timeout_s": 0.2}}
        async with running(tmp_path, values) as stack:
            dispatcher = stack.service.dispatcher
            await until(lambda: all(each.is_pickable for each in dispatcher.fleet))
            dispatcher.set_intent(tap_two.address, Intent.DISABLED, time.monotonic())
            for _ in range(4):
                assert (await ask(stack.client)).status_code == 200
            tap_two.target = one.address
            tap_two.break_connections()
            dispatcher.set_intent(tap_one.address, Intent.DISABLED, time.monotonic())
            dispatcher.set_intent(tap_two.address, Intent.ACTIVE, time.monotonic())
            before = one.count(COMPLETION)
            assert (await ask(stack.client)).status_code == 503
            assert one.count(COMPLETION) == before


async def test_an_agents_server_behind_tls_is_served_with_what_the_agent_says(
    tmp_path: Path,
) -> None:
    """The picker has no file of its CAs; Envoy checks the advertised address."""
    authority = Authority(tmp_path)
    async with (
        FakeLlamaServer() as plain,
        FakeLlamaServer(tls=server_side(authority.issue("server"))) as server,
        Wiretap(server.address) as tap,
    ):
        answers(plain, server)
        async with running(tmp_path, {"endpoints": [str(plain.address)]}) as stack:
            plan = AgentPlan(
                picker=f"127.0.0.1:{stack.service.admin_port}",
                llama=f"https://{server.address}",
                advertise=f"https://{tap.address}",
                ca_file=authority.ca,
            )
            target, options = plan_agent(plan)
            agent = Agent(target, options, lambda: grpc.aio.insecure_channel(plan.picker))
            work = asyncio.create_task(agent.run())
            async with load_on(stack) as load:
                await load.grows(5, plain.address)
                await load.grows(5, tap.address)
                agent.leave()
                await work
                await load.grows(5, plain.address)
            assert tap.in_the_clear == []
            assert server.count(COMPLETION) >= 5
