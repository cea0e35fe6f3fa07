"""Claims about pools in a whole picker: ports, sources and a reload of its settings."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from extproc.admin.dependencies import ReloadError
from extproc.app.preflight import followed_problems, startup_problems
from extproc.app.service import Service
from extproc.core.address import Address
from extproc.demo.port import free_ports
from extproc.settings import Settings, SettingsError
from tests.app.test_service import ANYWHERE

A, B = Address.parse("127.0.0.1:1"), Address.parse("127.0.0.1:2")


def settings(**written: Any) -> Settings:
    return Settings.model_validate({"listen": ANYWHERE, "envoy": {"discovery": True}, **written})


def pool_of(service: Service, address: Address) -> str:
    endpoint = service.dispatcher.fleet.get(address)
    assert endpoint is not None
    return endpoint.spec.pool


async def is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def test_a_reload_opens_and_closes_ports_and_moves_endpoints() -> None:
    """A port that is taken changes nothing; no endpoint may be at a port of ours."""
    first, second, taken = free_ports(3)
    chat: dict[str, Any] = {"default": True, "port": first}
    now = settings(pools={"chat": chat}, endpoints=[str(A)])
    service = Service(now, load=lambda: now)
    await service.start()
    try:
        assert await is_open(first) and pool_of(service, A) == "chat"
        own = Address("127.0.0.1", first)
        assert service.fleet_sources.address_rejection(own, "127.0.0.1")

        with socket.create_server(("127.0.0.1", taken)):
            pools: dict[str, Any] = {
                "chat": chat,
                "night": {"port": second},
                "batch": {"port": taken},
            }
            now = settings(pools=pools, endpoints=[str(A)])
            with pytest.raises(ReloadError, match=r"cannot listen on .*pools\.batch\.port"):
                await service.settings.reload(is_dry_run=False)
        assert not await is_open(second) and await is_open(first)
        assert "night" not in service.dispatcher.view.pools

        pools = {"chat": {"hosts": ["a"]}, "batch": {"default": True, "port": first}}
        now = settings(pools=pools, endpoints=[str(A)])
        with pytest.raises(ReloadError, match="is the port of the pool chat"):
            await service.settings.reload(is_dry_run=False)

        pools["batch"]["port"] = second
        now = settings(pools=pools, endpoints=[str(A), {"address": str(B), "in_pool": "chat"}])
        assert "pools" in (await service.settings.reload(is_dry_run=False)).applied
        assert await is_open(second) and not await is_open(first)
        assert (pool_of(service, A), pool_of(service, B)) == ("batch", "chat")
        assert service.dispatcher.view.pools == ("chat", "batch")
        assert service.processor.options.pools is not None

        now = settings(endpoints=[str(A), str(B)])
        await service.settings.reload(is_dry_run=False)
        assert not await is_open(second)
        assert (pool_of(service, A), pool_of(service, B)) == ("", "")
        assert service.processor.options.pools is None
    finally:
        await service.stop()


async def test_with_fronts_no_port_is_opened_after_the_start() -> None:
    """Their supervisor listens. A pool may go, and come again at its port."""
    first, second = free_ports(2)
    pools: dict[str, Any] = {"chat": {"default": True}, "batch": {"port": first}}
    now = at_start = settings(pools=pools, fronts=2)
    service = Service(now, load=lambda: now)
    await service.start()
    try:
        assert not await is_open(first)
        own = Address("127.0.0.1", first)
        assert service.fleet_sources.address_rejection(own, "127.0.0.1")
        for wrong in (
            {**pools, "batch": {"port": second}},
            {"chat": {"port": first}, "batch": {"default": True}},
        ):
            now = settings(pools=wrong, fronts=2)
            with pytest.raises(ReloadError, match=r"\.port: with fronts, a port is opened at a"):
                await service.settings.reload(is_dry_run=False)
        now = settings(pools={"chat": {"default": True}}, fronts=2)
        await service.settings.reload(is_dry_run=False)
        assert list(service.dispatcher.view.pools) == ["chat"]
        now = at_start
        await service.settings.reload(is_dry_run=False)
        assert list(service.dispatcher.view.pools) == ["chat", "batch"]
    finally:
        await service.stop()


async def test_a_port_that_is_taken_is_named_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        service = Service(settings(pools={"chat": {"default": True, "port": port}}))
        with pytest.raises(SettingsError, match=r"pools\.chat\.port"):
            await service.start()


async def test_a_file_names_the_pools_of_its_endpoints(tmp_path: Path) -> None:
    """One that there is not is a problem of the file, which changes nothing."""
    file = tmp_path / "fleet.yaml"
    file.write_text(f"endpoints: [{{address: '{A}', in_pool: batch}}, '{B}']")
    pools = {"chat": {"default": True}, "batch": {"hosts": ["b"]}}
    service = Service(settings(pools=pools, discovery={"file": str(file)}))
    await service.start()
    try:
        async with asyncio.timeout(30):
            while B not in service.dispatcher.fleet:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (pool_of(service, A), pool_of(service, B)) == ("batch", "chat")
            file.write_text(f"endpoints: [{{address: '{A}', in_pool: night}}]")
            while not service.fleet_sources.problems:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "there is no pool of the name night" in service.fleet_sources.problems[0]
        assert pool_of(service, A) == "batch"
    finally:
        await service.stop()


def test_a_check_finds_ports_that_clash_and_endpoints_in_no_pool(tmp_path: Path) -> None:
    """Before a start."""
    file = tmp_path / "fleet.yaml"
    file.write_text(f"endpoints: [{{address: '{A}', in_pool: night}}]")
    found = Settings.model_validate(
        {
            "pools": {"chat": {"default": True, "port": 9002}, "batch": {"port": 9003}},
            "discovery": {"file": str(file)},
        }
    )
    assert {problem.key for problem in startup_problems(found)} == {
        "pools.chat.port",
        "pools.batch.port",
    }
    (problem,) = followed_problems(found)
    assert "there is no pool of the name night" in problem.message
