"""Claims about extproc/demo/own_servers.py."""

from __future__ import annotations

import asyncio

import pytest

from extproc.demo import own_servers as own_servers_module
from extproc.demo.own_servers import OwnServers, own_sentence, own_servers
from extproc.settings import DiscoverySettings, EndpointSettings

NAMES = {"gpu": ["10.0.0.1"], "fleet": ["10.0.0.1", "10.0.0.2"]}


async def lookup(host: str) -> list[str]:
    if host == "asleep":
        await asyncio.sleep(3600)
    if host == "nowhere":
        raise OSError("unknown")
    return NAMES.get(host, [host])


async def told(*addresses: str) -> OwnServers:
    return await own_servers([EndpointSettings(address=one) for one in addresses], lookup)


async def test_the_same_address_is_one_server_however_it_is_named() -> None:
    own = await told("10.0.0.1:1", "10.0.0.1:1", "gpu:1", "https://gpu:1", "gpu:2")
    assert own == OwnServers(
        count=2,
        different=("10.0.0.1:1", "gpu:2"),
        again=tuple((again, "10.0.0.1:1") for again in ("10.0.0.1:1", "gpu:1", "https://gpu:1")),
    )


async def test_a_name_with_two_addresses_is_two_servers() -> None:
    assert await told("gpu:1", "fleet:1") == OwnServers(
        count=2, different=("gpu:1", "fleet:1"), again=()
    )


async def test_a_name_that_nobody_knows_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_servers_module, "PATIENCE_S", 0.01)
    own = await told("nowhere:1", "asleep:1", "nowhere:1")
    assert own == OwnServers(
        count=2, different=("nowhere:1", "asleep:1"), again=(("nowhere:1", "nowhere:1"),)
    )


def test_where_servers_come_from_is_said() -> None:
    """Those that are named, and the sources that are asked for more."""
    assert own_sentence(2, DiscoverySettings()) == "Servers: 2 of your own."
    file = DiscoverySettings(file="fleet.yaml")
    assert own_sentence(0, file) == "Servers: those in fleet.yaml."
    both = DiscoverySettings.model_validate({"file": "fleet.yaml", "dns": ["dns://gpus:8080"]})
    assert own_sentence(1, both) == (
        "Servers: 1 of your own, and those in fleet.yaml, and those in gpus."
    )
