"""Endpoints by DNS, against a real name server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scraper.discovery.discovered_endpoint import EndpointEntry
from scraper.discovery.dns import MAX_BACKOFF_S, DnsEndpoints, DnsName
from scraper.discovery.dns_cache import Found, Hosts, Nothing, Pace, Services
from scraper.discovery.resolver import Resolver
from tests.fakes.dns_server import FakeDnsServer
from tests.fakes.patience import PATIENCE_S
from tests.fakes.publications import Publications

QUICK = Pace(min_s=0.01, max_s=0.02)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may stand still for longer than a name server has."""
    monkeypatch.setattr("scraper.discovery.resolver.TRY_S", PATIENCE_S)
    monkeypatch.setattr("scraper.discovery.resolver.LIFETIME_S", PATIENCE_S)


@pytest.fixture
async def server() -> AsyncIterator[FakeDnsServer]:
    async with FakeDnsServer() as running:
        yield running


def host(name: str, port: int = 8080, api_key: str | None = None) -> DnsName:
    return DnsName(entry=EndpointEntry(host=name, port=port, api_key=api_key))


def service(name: str) -> DnsName:
    return DnsName(entry=EndpointEntry(host=name, port=0), is_service=True)


@asynccontextmanager
async def following(server: FakeDnsServer, *names: DnsName) -> AsyncIterator[Publications]:
    told = Publications()
    source = DnsEndpoints(told, Resolver([server.address]), QUICK)
    source.set(names)
    try:
        yield told
    finally:
        await source.aclose()


async def test_every_address_of_a_name_is_an_endpoint(server: FakeDnsServer) -> None:
    server.records["llama.", "A"] = []  # another name: no record of this one may leak in
    server.records["llama.test", "A"] = ["10.0.0.2", "10.0.0.1"]
    server.records["llama.test", "AAAA"] = ["fd00::1"]
    async with following(server, host("llama.test.", api_key="sesame")) as told:
        await told.are("10.0.0.1:8080", "10.0.0.2:8080", "[fd00::1]:8080")
        assert told.is_complete
        one = told.one("10.0.0.1:8080")
        assert one.spec.hostname == "llama.test"
        assert one.target is not None and one.target.api_key == "sesame"
        assert "sesame" not in repr(one)


async def test_a_name_that_scales_is_followed(server: FakeDnsServer) -> None:
    server.ttl_s = 0
    server.records["llama.test", "A"] = ["10.0.0.1"]
    async with following(server, host("llama.test.")) as told:
        await told.are("10.0.0.1:8080")
        server.records["llama.test", "A"] = [f"10.0.0.{n}" for n in range(1, 5)]
        await told.are(*(f"10.0.0.{n}:8080" for n in range(1, 5)))
        server.records["llama.test", "A"] = ["10.0.0.3"]
        await told.are("10.0.0.3:8080")


@pytest.mark.parametrize(
    ("ttl_s", "pause_s"), [(7, 7.0), (0, 1.0), (86_400, 3600.0)], ids=["told", "none", "days"]
)
@pytest.mark.parametrize("name", [host("llama.test"), service("_llama._tcp.test")])
async def test_the_next_question_comes_when_the_answers_ttl_is_over(
    server: FakeDnsServer, name: DnsName, ttl_s: int, pause_s: float
) -> None:
    """Within the bounds that the settings give."""
    server.ttl_s = ttl_s
    server.records["llama.test", "A"] = ["10.0.0.1"]
    server.records["_llama._tcp.test", "SRV"] = ["0 0 8080 llama.test."]
    asleep: asyncio.Queue[float] = asyncio.Queue()
    turn = asyncio.Event()

    async def sleep(seconds: float) -> None:
        asleep.put_nowait(seconds)
        await turn.wait()
        turn.clear()

    pace = Pace(min_s=1.0, max_s=3600.0)
    told = Publications()
    source = DnsEndpoints(told, Resolver([server.address]), pace, sleep)
    source.set([name])
    assert await asyncio.wait_for(asleep.get(), PATIENCE_S) == pause_s
    assert told.addresses == {"10.0.0.1:8080"}
    server.records["llama.test", "A"] = ["10.0.0.2"]
    asked = len(server.queries)
    turn.set()
    assert await asyncio.wait_for(asleep.get(), PATIENCE_S) == pause_s
    assert told.addresses == {"10.0.0.2:8080"} and len(server.queries) > asked
    await source.aclose()


async def test_a_rotated_answer_is_no_news(server: FakeDnsServer) -> None:
    server.ttl_s = 0
    server.records["llama.test", "A"] = ["10.0.0.1", "10.0.0.2"]
    async with following(server, host("llama.test.")) as told:
        await told.are("10.0.0.1:8080", "10.0.0.2:8080")
        count = told.count
        server.records["llama.test", "A"].reverse()
        await server.was_asked("llama.test", len(server.queries) + 10)
        assert told.count == count


async def test_a_name_server_that_fails_takes_nothing_away(
    server: FakeDnsServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.ttl_s = 0
    server.records["llama.test", "A"] = ["10.0.0.1"]
    async with following(server, host("llama.test.")) as told:
        await told.are("10.0.0.1:8080")
        server.broken.add("llama.test")
        await server.was_asked("llama.test", len(server.queries) + 10)
        assert told.addresses == {"10.0.0.1:8080"}
        server.broken.clear()
        server.records["llama.test", "A"] = ["10.0.0.9"]
        await told.are("10.0.0.9:8080")
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == ["dns: llama.test.: no name server answered; keeping its 1 endpoints"]


async def test_a_name_is_a_problem_as_long_as_it_is_not_answered(server: FakeDnsServer) -> None:
    server.broken.add("llama.test")
    told = Publications()
    source = DnsEndpoints(told, Resolver([server.address]), QUICK)
    source.set([host("llama.test.")])
    try:
        await server.was_asked("llama.test", 10)
        (problem,) = source.problems
        assert problem == "dns: llama.test.: no name server answered; keeping its 0 endpoints"
        server.records["llama.test", "A"] = ["10.0.0.9"]
        server.broken.clear()
        await told.are("10.0.0.9:8080")
        assert not source.problems
    finally:
        await source.aclose()


async def test_a_name_that_is_gone_for_good_loses_its_endpoints(server: FakeDnsServer) -> None:
    server.ttl_s = 0
    server.records["llama.test", "A"] = ["10.0.0.1"]
    async with following(server, host("llama.test.")) as told:
        await told.are("10.0.0.1:8080")
        del server.records["llama.test", "A"]
        await told.are()
        server.records["llama.test", "A"] = ["10.0.0.1"]
        await told.are("10.0.0.1:8080")


async def test_service_records_report_ports(server: FakeDnsServer) -> None:
    server.ttl_s = 0
    server.records["_llama._tcp.test", "SRV"] = ["0 1 8080 one.test.", "9 1 8081 two.test."]
    server.records["one.test", "A"] = ["10.0.0.1"]
    server.records["two.test", "A"] = ["10.0.0.2", "10.0.0.3"]
    async with following(server, service("_llama._tcp.test.")) as told:
        await told.are("10.0.0.1:8080", "10.0.0.2:8081", "10.0.0.3:8081")
        assert told.one("10.0.0.2:8081").spec.hostname == "two.test"
        server.records["_llama._tcp.test", "SRV"] = ["0 1 8080 one.test."]
        await told.are("10.0.0.1:8080")
        server.records["_llama._tcp.test", "SRV"] = ["0 0 0 ."]
        await told.are()


async def test_a_large_answer_comes_over_tcp(server: FakeDnsServer) -> None:
    server.records["llama.test", "A"] = [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(300)]
    async with following(server, host("llama.test.")) as told:
        while len(told.addresses) < 300:
            await told.changed()
    assert server.tcp_questions > 0


async def test_a_source_is_complete_when_every_name_was_answered(server: FakeDnsServer) -> None:
    server.records["good.test", "A"] = ["10.0.0.1"]
    server.broken.add("bad.test")
    async with following(server, host("good.test."), host("bad.test.")) as told:
        await told.are("10.0.0.1:8080")
        await server.was_asked("bad.test", 10)
        assert not told.is_complete
        server.broken.clear()
        await told.were_complete()
        assert told.addresses == {"10.0.0.1:8080"}


async def test_names_come_and_go_without_touching_the_others(server: FakeDnsServer) -> None:
    server.records["one.test", "A"] = ["10.0.0.1"]
    server.records["two.test", "A"] = ["10.0.0.2"]
    told = Publications()
    source = DnsEndpoints(told, Resolver([server.address]), QUICK)
    source.set([host("one.test.")])
    await told.are("10.0.0.1:8080")
    server.broken.add("one.test")
    source.set([host("two.test."), host("one.test.")])
    assert told.addresses == {"10.0.0.1:8080"}
    await told.are("10.0.0.1:8080", "10.0.0.2:8080")
    source.set([host("two.test.")])
    assert told.addresses == {"10.0.0.2:8080"}
    await source.aclose()


async def test_silence_is_a_failure(server: FakeDnsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scraper.discovery.resolver.TRY_S", 0.02)
    monkeypatch.setattr("scraper.discovery.resolver.LIFETIME_S", 0.05)
    server.ttl_s = 0
    server.records["llama.test", "A"] = ["10.0.0.1"]
    async with following(server, host("llama.test.")) as told:
        await told.are("10.0.0.1:8080")
        server.is_mute = True
        await server.was_asked("llama.test", len(server.queries) + 6)
        server.is_mute = False
        server.records["llama.test", "A"] = ["10.0.0.2"]
        await told.are("10.0.0.2:8080")


async def test_another_key_leaves_the_endpoints_where_they_are(server: FakeDnsServer) -> None:
    """The same name with a new key: at no moment is one of its servers out of the fleet."""
    server.records["llama.test", "A"] = ["10.0.0.1"]
    told = Publications()
    source = DnsEndpoints(told, Resolver([server.address]), QUICK)
    source.set([host("llama.test.", api_key="old")])
    await told.are("10.0.0.1:8080")
    server.is_mute = True
    source.set([host("llama.test.", api_key="new")])
    target = told.one("10.0.0.1:8080").target
    assert target is not None and target.api_key == "new"
    await source.aclose()


async def test_other_name_servers_leave_the_endpoints_where_they_are(
    server: FakeDnsServer,
) -> None:
    """They are asked at once, however long the pause was; one that fails takes nothing away."""
    server.records["llama.test", "A"] = ["10.0.0.1"]
    day = Pace(min_s=86_400.0, max_s=86_400.0)
    told = Publications()
    source = DnsEndpoints(told, Resolver([server.address]), day)
    source.set([host("llama.test.")])
    await told.are("10.0.0.1:8080")
    count = told.count
    async with FakeDnsServer() as mistyped, FakeDnsServer() as other:
        mistyped.broken.add("llama.test")
        source.use(Resolver([mistyped.address]), QUICK)
        await mistyped.was_asked("llama.test", 10)
        assert told.addresses == {"10.0.0.1:8080"} and told.count == count
        other.records["llama.test", "A"] = ["10.0.0.1", "10.0.0.2"]
        source.use(Resolver([other.address]), day)
        await told.are("10.0.0.1:8080", "10.0.0.2:8080")
        assert told.count == count + 1
        await source.aclose()


async def test_what_nobody_expected_of_an_answer_is_reported_and_the_name_is_followed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a long pause, and its endpoints stay."""
    scrapes = 0
    pauses: list[float] = []

    class Lookups:
        async def hosts(self, name: str) -> tuple[Hosts, Hosts]:
            nonlocal scrapes
            scrapes += 1
            if scrapes == 2:
                raise KeyError(name)
            return Found(values=(f"10.0.0.{min(scrapes, 3)}",), ttl_s=1.0), Nothing()

        async def services(self, name: str) -> Services:
            raise AssertionError(name)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    told = Publications()
    source = DnsEndpoints(told, Lookups(), QUICK, sleep)
    source.set([host("llama.test.")])
    await told.are("10.0.0.1:8080")
    await told.are("10.0.0.3:8080")
    await source.aclose()
    assert pauses[:2] == [QUICK.max_s, MAX_BACKOFF_S]
    errors = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert errors == ["dns: the lookup of llama.test. failed"]
