"""Claims about scraper/discovery/resolver.py, against a real name server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from scraper.discovery.dns_cache import Failed, Found, Nothing, Service
from scraper.discovery.resolver import Resolver
from tests.fakes.dns_server import FakeDnsServer
from tests.fakes.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may stand still for longer than a name server has."""
    monkeypatch.setattr("scraper.discovery.resolver.TRY_S", PATIENCE_S)
    monkeypatch.setattr("scraper.discovery.resolver.LIFETIME_S", PATIENCE_S)


@pytest.fixture
async def server() -> AsyncIterator[FakeDnsServer]:
    async with FakeDnsServer() as running:
        yield running


async def test_both_families_are_asked_and_answered_apart(server: FakeDnsServer) -> None:
    server.ttl_s = 7
    server.records["gpu.test", "A"] = ["10.0.0.1", "10.0.0.2"]
    ipv4, ipv6 = await Resolver([server.address]).hosts("gpu.test.")
    assert isinstance(ipv4, Found)
    assert (set(ipv4.values), ipv4.ttl_s) == ({"10.0.0.1", "10.0.0.2"}, 7.0)
    assert ipv6 == Nothing()


async def test_a_name_that_does_not_exist_is_nothing_and_no_failure(server: FakeDnsServer) -> None:
    """A name server said so: what stood for it may go in time."""
    assert await Resolver([server.address]).hosts("gone.test.") == (Nothing(), Nothing())


async def test_a_name_server_that_fails_is_a_failure(server: FakeDnsServer) -> None:
    """Nothing is known, so nothing may change."""
    server.broken.add("gpu.test")
    ipv4, ipv6 = await Resolver([server.address]).hosts("gpu.test.")
    assert isinstance(ipv4, Failed) and isinstance(ipv6, Failed)
    assert "no name server answered" in ipv4.reason


async def test_a_name_server_that_says_nothing_is_a_failure(
    server: FakeDnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scraper.discovery.resolver.TRY_S", 0.01)
    monkeypatch.setattr("scraper.discovery.resolver.LIFETIME_S", 0.02)
    server.is_mute = True
    found = await Resolver([server.address]).services("_llama._tcp.test.")
    assert isinstance(found, Failed) and "no answer within" in found.reason


@pytest.mark.parametrize("name", ["a..b.", "x" * 64 + ".test."])
async def test_what_is_no_name_is_a_failure(server: FakeDnsServer, name: str) -> None:
    """Of whatever the settings say, no exception comes."""
    ipv4, _ = await Resolver([server.address]).hosts(name)
    assert isinstance(ipv4, Failed) and "failed with" in ipv4.reason
    assert server.queries == []


async def test_a_service_has_hosts_and_ports(server: FakeDnsServer) -> None:
    """Priorities and weights are left out: free slots decide."""
    server.records["_llama._tcp.test", "SRV"] = ["0 1 8080 one.test.", "9 5 8081 two.test."]
    found = await Resolver([server.address]).services("_llama._tcp.test.")
    assert isinstance(found, Found)
    assert set(found.values) == {Service("one.test.", 8080), Service("two.test.", 8081)}


@pytest.mark.parametrize("record", ["0 0 0 .", "0 1 0 one.test.", "0 1 8080 ."])
async def test_a_service_that_is_not_offered_is_nothing(server: FakeDnsServer, record: str) -> None:
    """RFC 2782 writes it as a single dot."""
    server.records["_llama._tcp.test", "SRV"] = [record]
    assert await Resolver([server.address]).services("_llama._tcp.test.") == Nothing()
