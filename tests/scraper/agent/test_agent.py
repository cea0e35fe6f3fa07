"""The agent itself, between a fake llama-server over real HTTP and a real port over real gRPC."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from extproc.admin.auth.guard import Guard
from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.fleet.health import Health
from extproc.core.request import Request
from extproc.core.slots.lease import LeaseEnd
from extproc.runners.target import EndpointTarget
from extproc.security.tokens import Token
from extproc.settings import AgentsSettings
from scraper.agent import Agent, AgentOptions, link
from scraper.agent.advertise import Advertise
from scraper.agent.link import HEARTBEAT_S
from scraper.agent.picker_stream import Backoff, LinkError
from scraper.options import ScraperOptions
from scraper.schedule import Cadence
from tests.fakes.agents import FakeAgentsPort, agents_port
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.patience import PATIENT_SCRAPES

HERE = "10.0.0.1:8080"
QUICK = replace(PATIENT_SCRAPES, cadence=Cadence(fast_s=0.01, slow_s=0.02), scrape_gap_s=0.001)
RARE = replace(QUICK, cadence=Cadence(fast_s=3600, slow_s=3600))


@pytest.fixture
async def llama() -> AsyncIterator[FakeLlamaServer]:
    async with FakeLlamaServer() as server:
        yield server


def build(
    llama: FakeLlamaServer,
    port: int,
    *,
    scraper: ScraperOptions = QUICK,
    token: str = "",
    clock: Callable[[], float] = time.monotonic,
    drain_timeout_s: float = 30.0,
) -> Agent:
    options = AgentOptions(
        picker=f"127.0.0.1:{port}",
        advertise=Advertise.parse(HERE, 8080),
        name="gpu-1",
        metadata=(("authorization", f"Bearer {token}"),) if token else (),
        scraper=scraper,
        drain_timeout_s=drain_timeout_s,
    )
    target = EndpointTarget(address=llama.address, may_sleep=False)
    return Agent(
        target,
        options,
        lambda: grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=(("grpc.use_local_subchannel_pool", 1),)
        ),
        clock=clock,
        random=lambda: 0.0,
    )


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(agent.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def is_pickable(port: FakeAgentsPort) -> None:
    await port.until(lambda: port.knows(HERE) and port.endpoint(HERE).is_pickable)


def pick(port: FakeAgentsPort) -> Picked:
    outcome = port.dispatcher.submit(Request(id="r", timeout_s=0.0), time.monotonic())
    assert isinstance(outcome, Picked)
    return outcome


async def test_it_reports_what_the_scraper_sees(llama: FakeLlamaServer) -> None:
    async with agents_port() as port, running(build(llama, port.port)):
        await is_pickable(port)
        assert port.endpoint(HERE).spec.name == "gpu-1"
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        llama.busy = (True, True, False)
        await port.until(lambda: (account.slots, account.foreign_slots) == (3, 2))
        llama.is_loading = True
        llama.busy = (False,)
        await port.until(lambda: port.endpoint(HERE).health is not Health.READY)


async def test_it_registers_only_when_its_server_answers(llama: FakeLlamaServer) -> None:
    await llama.stop()
    async with agents_port() as port, running(build(llama, port.port)):
        await asyncio.sleep(0.1)
        assert len(port.service.registry) == 0
        async with FakeLlamaServer(port=llama.address.port):
            await is_pickable(port)


async def test_a_server_that_dies_is_down_while_its_agent_lives(llama: FakeLlamaServer) -> None:
    async with agents_port() as port, running(build(llama, port.port)):
        await is_pickable(port)
        await llama.stop()
        await port.until(lambda: port.endpoint(HERE).health is Health.DOWN)
        assert port.endpoint(HERE).issues[0].code == "unreachable"
        async with FakeLlamaServer(port=llama.address.port):
            await is_pickable(port)


async def test_it_says_that_it_lives_where_there_is_nothing_to_report(
    llama: FakeLlamaServer,
) -> None:
    """Again and again, without a scrape."""
    async with agents_port() as port, running(build(llama, port.port, scraper=RARE)):
        await is_pickable(port)
        agent = port.service.registry.get(Address.parse(HERE))
        assert agent is not None
        for _ in range(2):
            heard_at, scrapes = agent.heard_at, len(port.observed)
            await port.until(lambda before=heard_at: agent.heard_at > before)  # type: ignore[misc]  # a default
            assert len(port.observed) == scrapes


def test_it_says_so_often_enough_to_be_missed_thrice_before_it_counts_as_dead() -> None:
    assert 3 * HEARTBEAT_S <= AgentsSettings().ttl_s == 3


async def test_a_change_is_reported_at_once(
    llama: FakeLlamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for no sign of life."""
    monkeypatch.setattr(link, "HEARTBEAT_S", 3600)
    async with agents_port() as port, running(build(llama, port.port)):
        await is_pickable(port)
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        for busy in ((True, False), (True, True, True), ()):
            llama.busy = (*busy, False)
            await port.until(lambda wanted=busy: account.foreign_slots == sum(wanted))  # type: ignore[misc]  # a default


async def test_it_pauses_between_its_attempts_as_its_backoff_says(
    llama: FakeLlamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks on meanwhile, and tells a rejection from a picker that is away."""
    pauses = [(False, 0.0), (True, 0.0), (False, 3600.0)]
    asked: list[bool] = []

    class Told(Backoff):
        def next_s(self, *, is_rejected: bool) -> float:
            asked.append(is_rejected)
            return pauses[len(asked) - 1][1]

    attempts = 0

    def connect() -> grpc.aio.Channel:
        nonlocal attempts
        attempts += 1
        raise LinkError("not there", is_rejection=pauses[attempts - 1][0])

    monkeypatch.setattr("scraper.agent.picker_stream.Backoff", Told)
    built = build(llama, 1)
    agent = Agent(built.target, built.options, connect)
    async with running(agent):
        while attempts < len(pauses):  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.001)
        await llama.was_asked("/slots", llama.count("/slots") + 20)
        assert attempts == len(pauses)
        assert asked == [is_rejected for is_rejected, _ in pauses]


async def test_a_fault_of_ours_in_a_report_does_not_end_it(
    llama: FakeLlamaServer, caplog: pytest.LogCaptureFixture
) -> None:
    """In a keeper nobody would notice: its server would never be picked again."""
    async with agents_port() as port:
        built = build(llama, port.port)
        attempts = 0

        def connect() -> grpc.aio.Channel:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise RuntimeError("a fault of ours")
            return grpc.aio.insecure_channel(f"127.0.0.1:{port.port}")

        agent = Agent(built.target, built.options, connect, random=lambda: 0.0)
        async with running(agent):
            await is_pickable(port)
    assert "reporting to the picker failed; it is tried again" in caplog.text


async def test_it_scrapes_when_the_picker_asks(llama: FakeLlamaServer) -> None:
    """Nobody would look for an hour: only the poke frees the slot of a client that left.

    By a clock that stands still, for whose drift over a slow look nothing has to be allowed.
    """
    async with (
        agents_port() as port,
        running(build(llama, port.port, scraper=RARE, clock=lambda: 0.0)),
    ):
        await is_pickable(port)
        account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
        free_slots = account.free_slots
        port.dispatcher.release(pick(port).lease, LeaseEnd.ABANDONED, time.monotonic())
        await port.until(lambda: account.free_slots == free_slots)


async def test_it_comes_back_to_a_picker_that_was_restarted(
    llama: FakeLlamaServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "coxswain.agent")
    async with agents_port() as port:
        number = port.port
        agent = build(llama, number)
        task = asyncio.create_task(agent.run())
        await is_pickable(port)
    await asyncio.sleep(0.3)
    async with agents_port(port=number) as port:
        await is_pickable(port)
        agent.leave()
        await task
    texts = [record.getMessage() for record in caplog.records if record.name == "coxswain.agent"]
    assert any("retrying" in text for text in texts)
    assert any("again" in text and "connected" in text for text in texts)
    assert len(texts) < 8, "a picker that is away is not one line for each attempt"


async def test_at_the_end_it_drains_first(llama: FakeLlamaServer) -> None:
    async with agents_port() as port:
        agent = build(llama, port.port)
        async with running(agent) as task:
            await is_pickable(port)
            lease = pick(port).lease
            agent.leave()
            await port.until(lambda: port.endpoint(HERE).is_removed)
            scrapes = len(port.observed)
            await port.until(lambda: len(port.observed) > scrapes + 3 or task.done())
            assert not task.done(), "it goes on reporting while a request runs there"
            port.dispatcher.release(lease, LeaseEnd.SERVED, time.monotonic())
            await task
            assert not port.knows(HERE)


async def test_the_end_has_an_end(llama: FakeLlamaServer) -> None:
    async with agents_port() as port:
        agent = build(llama, port.port, drain_timeout_s=0.1)
        async with running(agent) as task:
            await is_pickable(port)
            pick(port)
            agent.leave()
            await task


async def test_who_never_reached_a_picker_leaves_at_once(llama: FakeLlamaServer) -> None:
    agent = build(llama, 1)
    async with running(agent) as task:
        await llama.was_asked("/slots")
        agent.leave()
        await task


async def test_a_wrong_token_is_reported_and_not_tried_again_at_once(
    llama: FakeLlamaServer, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(agents=Token("agents-secret"))
    async with agents_port(guard=guard) as port:
        async with running(build(llama, port.port, token="wrong")):
            while "bearer token" not in caplog.text:  # noqa: ASYNC110  # a log wakes nobody
                await asyncio.sleep(0.01)
        assert "secret" not in caplog.text and "wrong" not in caplog.text.replace("the wrong", "")
        async with running(build(llama, port.port, token="agents-secret")):
            await is_pickable(port)


async def test_another_agent_takes_over_and_this_one_does_not_fight(
    llama: FakeLlamaServer,
) -> None:
    async with agents_port() as port, running(build(llama, port.port)):
        await is_pickable(port)
        async with FakeLlamaServer(busy=(True,)) as other, running(build(other, port.port)):
            account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
            await port.until(lambda: account.slots == 1)
            await asyncio.sleep(0.3)
            assert account.slots == 1


async def test_another_key_is_reported_at_once_and_no_lease_is_touched(
    llama: FakeLlamaServer,
) -> None:
    """On a stream of its own, which comes so soon that nobody misses the agent."""
    async with agents_port() as port:
        agent = build(llama, port.port, scraper=RARE)
        async with running(agent) as task:
            await is_pickable(port)
            lease = pick(port).lease
            agent.renew(agent.target, replace(agent.options, api_key="sk-1"))
            told = port.endpoint(HERE)
            await port.until(lambda: told.spec.authorization == "Bearer sk-1")
            account = port.dispatcher.ledger.endpoint_slots(Address.parse(HERE))
            assert account.leased_slots == 1 and told.health is Health.READY
            agent.leave()
            port.dispatcher.release(lease, LeaseEnd.SERVED, time.monotonic())
            await task
            assert not port.knows(HERE)


async def test_the_same_again_and_what_only_its_scrapes_need_is_no_new_stream(
    llama: FakeLlamaServer,
) -> None:
    async with agents_port() as port:
        agent = build(llama, port.port, scraper=RARE)
        async with running(agent):
            await is_pickable(port)
            known = port.service.registry.get(Address.parse(HERE))
            assert known is not None
            stream, scrapes = known.stream, len(port.observed)
            agent.renew(agent.target, agent.options)
            agent.renew(replace(agent.target, api_key="sk-2"), agent.options)
            await port.until(lambda: len(port.observed) > scrapes)
            assert known.stream == stream
            assert llama.asked[-1].headers["authorization"] == "Bearer sk-2"


async def test_a_rejected_agent_tries_again_when_its_token_is_another_one(
    llama: FakeLlamaServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the time that a rejection costs otherwise, which is an hour here."""
    monkeypatch.setattr("scraper.agent.picker_stream.REJECTED_S", 3600.0)
    guard = Guard(agents=Token("agents-secret"))
    async with agents_port(guard=guard) as port:
        agent = build(llama, port.port, token="wrong")
        async with running(agent):
            while "bearer token" not in caplog.text:  # noqa: ASYNC110  # a log wakes nobody
                await asyncio.sleep(0.01)
            metadata = (("authorization", "Bearer agents-secret"),)
            agent.renew(agent.target, replace(agent.options, metadata=metadata))
            await is_pickable(port)


async def test_a_farewell_counts_more_than_news(llama: FakeLlamaServer) -> None:
    """One who leaves in the very moment of new keys takes leave, and then nothing is renewed."""
    async with agents_port() as port:
        agent = build(llama, port.port, scraper=RARE)
        async with running(agent) as task:
            await is_pickable(port)
            agent.renew(agent.target, replace(agent.options, api_key="sk-1"))
            agent.leave()
            agent.renew(agent.target, replace(agent.options, api_key="sk-2"))
            await task
            assert not port.knows(HERE)


async def test_it_leaves_nothing_running(llama: FakeLlamaServer) -> None:
    before = asyncio.all_tasks()
    async with agents_port() as port:
        async with running(build(llama, port.port)):
            await is_pickable(port)
        await llama.had_no_connections()
    left = {task for task in asyncio.all_tasks() - before if "picker" in task.get_name()}
    assert left == set()
