"""Agents over real loopback gRPC: attached, poked, silent, rivals, half open, and gone."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import grpc
import pytest

from extproc.admin.agents import liveness, service
from extproc.admin.auth.guard import Guard
from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import Health
from extproc.core.observation import ScrapeStatus
from extproc.core.request import Request
from extproc.core.slots.lease import LeaseEnd
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.security.address_policy import PRIVATE, AddressPolicy
from extproc.security.tokens import Token
from extproc.settings import AgentsSettings
from tests.fakes.agents import FakeAgentsPort, HandAgent, HandClock, agents_port
from tests.fakes.log import logged

HERE = "10.0.0.1:8080"
QUICK = AgentsSettings(ttl_s=0.3)
PATIENT = AgentsSettings(ttl_s=3600, forget_s=7200)


async def ready(port: FakeAgentsPort, agent: HandAgent, address: str = HERE) -> None:
    """Attach an agent and let its server be ready with four idle slots."""
    await agent.hello(address)
    await asked_to_scrape(agent)
    await agent.scrape()
    await port.until(lambda: port.endpoint(address).is_pickable)


async def asked_to_scrape(agent: HandAgent) -> None:
    while not (await agent.hear()).scrape_now:
        pass


def pick(port: FakeAgentsPort) -> Picked:
    outcome = port.dispatcher.submit(Request(id="r", timeout_s=0.0), time.monotonic())
    assert isinstance(outcome, Picked)
    return outcome


def writers() -> int:
    """How many streams the picker would still write to."""
    return sum("AgentStream.write" in repr(task) for task in asyncio.all_tasks())


async def test_an_agent_brings_its_endpoint_and_what_it_sees() -> None:
    async with agents_port() as port:
        agent = HandAgent(port.channel)
        await agent.hello(HERE, name="gpu-1")
        await asked_to_scrape(agent)
        await agent.scrape(busy=1)
        await port.until(lambda: port.endpoint(HERE).is_pickable)
        assert port.endpoint(HERE).spec.name == "gpu-1"
        assert port.dispatcher.fleet.sources_of(Address.parse(HERE)) == ["agents"]
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        assert (account.slots, account.foreign_slots) == (4, 1)
        assert (await agent.hear()).scrape_priority == pb.PickerMessage.SCRAPE_PRIORITY_HIGH


@pytest.mark.parametrize(("epoch", "pace"), [(-1e7, 1.0), (1e7, 1.0), (0, 3.0), (0, 0.5)])
async def test_a_wrong_clock_makes_no_slot_wrong(epoch: float, pace: float) -> None:
    """A fresh lease is never counted twice, and a freed slot is free at once."""
    async with agents_port() as port:
        agent = HandAgent(port.channel, epoch=epoch, pace=pace)
        await ready(port, agent)
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        (stream,) = port.service._streams.values()
        while pace > 1 and not stream.clock.is_wrong:
            await agent.beat()  # one that runs fast is trusted until it is found out
        for _ in range(20):
            began_at = agent.now()
            seen = len(port.observed)
            lease = pick(port).lease
            await asyncio.sleep(0.005)  # the scrape takes some time
            await agent.scrape(busy=1, began_at=began_at)
            await port.until(lambda seen=seen: len(port.observed) > seen)  # type: ignore[misc]
            assert (account.leased_slots, account.foreign_slots) == (1, 0)
            began_at, seen = agent.now(), len(port.observed)
            port.dispatcher.release(lease, LeaseEnd.SERVED, time.monotonic())
            await asyncio.sleep(0.005)
            await agent.scrape(busy=1, began_at=began_at)
            await port.until(lambda seen=seen: len(port.observed) > seen)  # type: ignore[misc]
            assert account.free_slots == 4
        await agent.scrape(busy=0)


async def test_a_client_that_left_is_asked_about_and_its_slot_freed_by_the_answer() -> None:
    async with agents_port() as port:
        agent = HandAgent(port.channel)
        await ready(port, agent)
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        port.dispatcher.release(pick(port).lease, LeaseEnd.ABANDONED, time.monotonic())
        assert account.free_slots == 3
        while account.free_slots < 4:  # until its request can no longer be on its way
            await agent.scrape(busy=0)
            await asyncio.sleep(0.02)


async def test_a_silent_agent_is_down_its_leases_stay_right_and_it_comes_back() -> None:
    async with agents_port() as port:
        agent = HandAgent(port.channel)
        await ready(port, agent)
        lease = pick(port).lease
        port.service.renew(QUICK)
        await port.until(lambda: port.endpoint(HERE).health is Health.DOWN)
        port.service.renew(PATIENT)
        assert [issue.code for issue in port.endpoint(HERE).issues] == ["agent-silent"]
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        assert (account.leased_slots, account.foreign_slots) == (1, 0)
        await agent.beat()
        await asked_to_scrape(agent)
        await agent.scrape(busy=1)
        await port.until(lambda: port.endpoint(HERE).is_pickable)
        assert (account.leased_slots, account.foreign_slots) == (1, 0)
        port.dispatcher.release(lease, LeaseEnd.SERVED, time.monotonic())
        assert account.free_slots == 4


async def test_a_heartbeat_is_enough_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "DEAF_AFTER_S", 3600)  # no silence is excused
    monkeypatch.setattr(liveness, "SWEEP_S", 0.01)
    clock = HandClock()
    async with agents_port(ttl_s=3.0, clock=clock) as port:
        agent = HandAgent(port.channel, pace=0.0)
        await ready(port, agent)
        known = port.service.registry.get(Address.parse(HERE))
        assert known is not None
        for _ in range(5):
            clock.now += 2.0
            await port.swept()
            await agent.beat()
            await port.until(lambda: known.heard_at == clock.now)
        assert port.endpoint(HERE).health is Health.READY


async def test_a_broken_stream_that_comes_back_in_time_is_no_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with agents_port() as port:
        await ready(port, HandAgent(port.channel))
        caplog.clear()
        for number in range(5):
            agent = HandAgent(port.channel)
            await agent.hello(HERE, agent_id=f"process {number}")
            await agent.scrape()
            agent.call.cancel()
            assert port.endpoint(HERE).health is Health.READY
        await port.until(lambda: not port.service.registry.get(Address.parse(HERE)).stream)  # type: ignore[union-attr]
        assert not any("silent" in record.getMessage() for record in caplog.records)


async def test_two_agents_for_one_address_are_one_line_in_the_log_and_do_not_fight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with agents_port() as port:
        old, new = HandAgent(port.channel), HandAgent(port.channel)
        await ready(port, old)
        await new.hello(HERE, agent_id="b")
        code, text = await old.ended()
        assert code is grpc.StatusCode.ALREADY_EXISTS and HERE in text
        for _ in range(3):
            again = HandAgent(port.channel)
            await again.hello(HERE, agent_id="a")
            assert (await again.ended())[0] is grpc.StatusCode.ALREADY_EXISTS
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        while account.foreign_slots != 2:
            await new.scrape(busy=2)
            await asyncio.sleep(0.01)
        warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert warnings == [
            f"two agents report {HERE}; the one that attached last replaces the other"
        ]


async def test_who_takes_an_address_over_gets_no_key_of_the_one_before() -> None:
    """Its server is shown what it offers itself, or what clients show."""
    async with agents_port() as port:
        first = HandAgent(port.channel)
        await first.hello(HERE, agent_id="first", api_key="sk-first")
        await port.until(lambda: port.knows(HERE))
        assert port.endpoint(HERE).spec.authorization == "Bearer sk-first"
        second = HandAgent(port.channel)
        await second.hello(HERE, agent_id="second")
        await port.until(lambda: port.endpoint(HERE).spec.authorization == "")


async def test_the_same_agent_on_a_new_connection_replaces_its_half_open_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with agents_port() as port:
        old, new = HandAgent(port.channel), HandAgent(port.channel)
        await ready(port, old)
        await new.hello(HERE, agent_id="a")
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        while account.foreign_slots != 3:
            await new.scrape(busy=3)
            await asyncio.sleep(0.01)
        assert (await old.ended())[0] is grpc.StatusCode.ALREADY_EXISTS
        assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_a_half_open_stream_is_ended_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an agent ever spoke there or not, and however often it is spoken to; one who
    speaks keeps its own."""
    monkeypatch.setattr(liveness, "DEAF_AFTER_S", 3600)  # no silence is excused
    monkeypatch.setattr(liveness, "SWEEP_S", 0.01)
    clock = HandClock()
    async with agents_port(clock=clock) as port:
        mute, gone, alive = (HandAgent(port.channel, pace=0.0) for _ in range(3))
        await mute.hear()
        await gone.hello(HERE)
        await alive.hello("10.0.0.2:8080", agent_id="b")
        await port.until(lambda: len(port.service.registry) == 2)
        known = port.service.registry.get(Address.parse("10.0.0.2:8080"))
        assert known is not None
        for _ in range(4):
            clock.now += liveness.CLOSE_AFTER_S / 3
            await alive.beat()
            await port.until(lambda: known.heard_at == clock.now)
            await port.swept()
        for agent in (mute, gone):
            code, text = await asyncio.wait_for(agent.ended(), 30)
            assert code is grpc.StatusCode.UNAVAILABLE and "no message for too long" in text
        clock.now += 1.0
        await alive.beat()
        await port.until(lambda: known.heard_at == clock.now)


async def test_our_own_absence_makes_nobody_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picker that stood still, as under SIGSTOP, heard nobody because it did not listen."""
    monkeypatch.setattr(liveness, "SWEEP_S", 0.01)
    clock = HandClock()
    async with agents_port(ttl_s=3.0, clock=clock) as port:
        agent = HandAgent(port.channel, pace=0.0)
        await ready(port, agent)
        await port.swept()
        clock.now += 9.0  # between two sweeps
        await port.swept()
        known = port.service.registry.get(Address.parse(HERE))
        assert known is not None and not known.is_silent
        await agent.beat()
        await port.until(lambda: known.heard_at == clock.now)
        assert port.endpoint(HERE).health is Health.READY
        assert all(seen.status is not ScrapeStatus.UNREACHABLE for seen in port.observed)


async def test_a_farewell_drains_first() -> None:
    async with agents_port() as port:
        agent = HandAgent(port.channel)
        await ready(port, agent)
        lease = pick(port).lease
        await agent.leave()
        await port.until(lambda: port.endpoint(HERE).is_removed)
        seen = len(port.observed)
        for _ in range(3):
            await agent.scrape(busy=1)
        await port.until(lambda: len(port.observed) == seen + 3)
        port.service.scrape_now(Address.parse(HERE))
        while not (heard := await agent.hear()).scrape_now:
            assert not heard.is_drained
        assert not heard.is_drained, "a request of ours still runs there"
        port.dispatcher.release(lease, LeaseEnd.SERVED, time.monotonic())
        await port.until(lambda: not port.knows(HERE))
        await agent.beat()
        while not (await agent.hear()).is_drained:
            pass
        agent.call.cancel()
        await port.until(lambda: len(port.service.registry) == 0)


async def test_a_farewell_is_short_where_others_name_the_server_since() -> None:
    async with agents_port() as port:
        agent = HandAgent(port.channel)
        await ready(port, agent)
        spec = EndpointSpec(address=Address.parse(HERE))
        port.dispatcher.set_members("settings", [spec], time.monotonic())
        pick(port)
        await agent.leave()
        while not (await agent.hear()).is_drained:
            pass
        assert port.endpoint(HERE).is_pickable


async def test_where_the_picker_can_scrape_itself_silence_is_no_death() -> None:
    async with agents_port() as port:
        port.scraped_by_picker.add(Address.parse(HERE))
        await ready(port, HandAgent(port.channel))
        address, before = Address.parse(HERE), port.changes
        port.service.renew(QUICK)
        await port.until(lambda: not port.service.registry.is_reporting(address))
        await port.until(lambda: port.changes > before)
        assert port.endpoint(HERE).health is Health.READY


async def test_a_forgotten_agent_leaves_the_fleet() -> None:
    """And is told, or it would report on to nobody once it goes on."""
    async with agents_port() as port:
        agent = HandAgent(port.channel)
        await ready(port, agent)
        port.service.renew(AgentsSettings(ttl_s=0.1, forget_s=0.3))
        await port.until(lambda: not port.knows(HERE))
        code, text = await asyncio.wait_for(agent.ended(), 10)
        assert code is grpc.StatusCode.UNAVAILABLE and "no message for too long" in text


async def test_who_died_in_its_farewell_takes_its_successor_not_along(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its half-open stream ends when the host is up again, and a new agent reports."""
    async with agents_port() as port:
        before, after = HandAgent(port.channel), HandAgent(port.channel)
        await ready(port, before)
        await before.leave()
        port.service.renew(QUICK)
        await port.until(lambda: len(port.service.registry) == 0)
        port.service.renew(PATIENT)
        await after.hello(HERE, agent_id="after")
        await port.until(lambda: port.knows(HERE))
        before.call.cancel()
        await port.until(lambda: writers() == 1)
        assert len(port.service.registry) == 1 and port.knows(HERE)
    assert not [record for record in logged(caplog) if record.levelname == "ERROR"]


async def test_many_agents_come_into_the_fleet_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restart of the picker; one process plays them all, so none is hurried."""
    monkeypatch.setattr(liveness, "CLOSE_AFTER_S", 3600)
    monkeypatch.setattr(service, "GATHER_S", 0.5)
    async with agents_port() as port:
        agents = [HandAgent(port.channel) for _ in range(500)]
        await asyncio.gather(
            *(
                agent.hello(f"10.0.{n // 250}.{n % 250}:1")
                for n, agent in enumerate(agents, start=1)
            )
        )
        for agent in agents:
            await asked_to_scrape(agent)
            await agent.scrape()
        await port.until(
            lambda: sum(endpoint.is_pickable for endpoint in port.dispatcher.fleet) == 500
        )
        assert len(port.published) < 250


async def test_nonsense_is_rejected_with_a_reason() -> None:
    async with agents_port() as port:
        agent = HandAgent(port.channel)
        await agent.hello("gpu-1:8080")
        code, text = await agent.ended()
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "hello.address" in text
        agent = HandAgent(port.channel)
        await agent.hear()
        await agent.scrape()
        assert "the first message" in (await agent.ended())[1]
        agent = HandAgent(port.channel)
        await agent.call.write(pb.AgentMessage(echo=99))
        assert "echo" in (await agent.ended())[1]
        agent = HandAgent(port.channel)
        await agent.hello(HERE)
        await agent.call.write(agent._message(hello=pb.Hello(address=HERE, agent_id="a")))
        assert "only the first message" in (await agent.ended())[1]
        raw: Any = port.channel.stream_stream("/coxswain.v1.Agents/Attach")()
        await raw.write(b"\xff\xff\xff")
        with suppress(grpc.aio.AioRpcError):
            while await raw.read() is not grpc.aio.EOF:
                pass
        assert await raw.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("169.254.169.254:80", "link-local"),
        ("[fe80::1]:8080", "link-local"),
        ("8.8.8.8:8080", "agents.allowed_networks"),
        ("10.0.0.5:9901", "port of Envoy"),
        ("127.0.0.1:9901", "port of Envoy"),
    ],
)
async def test_an_agent_brings_no_address_that_is_nobodys(
    address: str, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused by the picker in words, with one line in its log; the fleet stays as it is."""
    async with agents_port() as port:
        port.policy = AddressPolicy.of(PRIVATE, {9901})
        agent = HandAgent(port.channel)
        await agent.hello(address)
        code, text = await agent.ended()
        assert code is grpc.StatusCode.PERMISSION_DENIED and word in text and address in text
        assert not port.knows(address) and not port.published
        (line,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
        assert line == f"an agent was rejected: {text}"


async def test_an_agent_may_name_its_own_address_and_what_the_networks_hold() -> None:
    """Loopback because it calls over loopback."""
    async with agents_port() as port:
        port.policy = AddressPolicy.of(PRIVATE, {9901})
        for address in ("127.0.0.1:8080", "[::1]:8080", "192.168.7.7:8080", "[fd00::7]:8080"):
            agent = HandAgent(port.channel)
            await agent.hello(address)
            await port.until(lambda address=address: port.knows(address))  # type: ignore[misc]


async def test_an_agent_takes_over_nothing_that_others_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither when it comes, nor with a scrape when another source names its server since."""
    async with agents_port() as port:
        spec = EndpointSpec(address=Address.parse(HERE))
        port.dispatcher.set_members("settings", [spec], time.monotonic())
        late = HandAgent(port.channel)
        await late.hello(HERE)
        code, text = await late.ended()
        assert code is grpc.StatusCode.ALREADY_EXISTS and "is also in settings" in text
        told = [r for r in caplog.records if r.name == "coxswain.agents"]
        assert not port.published and [r.levelname for r in told] == ["WARNING"]

        port.dispatcher.set_members("settings", [], time.monotonic())
        agent = HandAgent(port.channel)
        await ready(port, agent)
        seen = len(port.observed)
        port.dispatcher.set_members("settings", [spec], time.monotonic())
        await agent.scrape(busy=1)
        assert (await agent.ended())[0] is grpc.StatusCode.ALREADY_EXISTS
        assert len(port.observed) == seen


async def test_agents_have_a_token_of_their_own() -> None:
    guard = Guard(admin=Token("operators-secret"), agents=Token("agents-secret"))
    async with agents_port(guard=guard) as port:
        for token in ("", "operators-secret", "wrong"):
            rejected = HandAgent(port.channel, token=token)
            assert (await rejected.ended())[0] is grpc.StatusCode.UNAUTHENTICATED
        await ready(port, HandAgent(port.channel, token="agents-secret"))


async def test_a_picker_that_goes_down_says_so() -> None:
    async with agents_port() as port:
        agent = HandAgent(port.channel)
        await ready(port, agent)
        port.service.close()
        code, text = await agent.ended()
        assert code is grpc.StatusCode.UNAVAILABLE and "reconnect" in text
