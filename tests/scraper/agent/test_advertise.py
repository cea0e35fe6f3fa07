"""Under which address a server is advertised: said, by the route, by EC2's metadata service."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from extproc.core.address import Address, AddressError
from scraper.agent.advertise import METADATA_VARIABLE, Advertise, AdvertiseError
from tests.fakes.metadata_service import FakeMetadataService
from tests.fakes.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may stand still for longer than the metadata service has."""
    monkeypatch.setattr("scraper.agent.advertise.TIMEOUT_S", PATIENCE_S)


@pytest.fixture
async def ec2() -> AsyncIterator[FakeMetadataService]:
    async with FakeMetadataService("10.1.2.3") as service:
        yield service


async def found(
    text: str, service: FakeMetadataService | None = None, picker: str = "127.0.0.1:9003"
) -> str:
    environ = {METADATA_VARIABLE: service.url} if service is not None else {}
    return str(await Advertise.parse(text, 8080).find(picker, environ))


async def test_what_is_said_is_taken() -> None:
    assert await found("10.0.0.5:9") == "10.0.0.5:9"
    assert await found("[fd00::5]:9") == "[fd00::5]:9"


async def test_auto_is_the_address_on_the_route_to_the_picker() -> None:
    assert await found("auto") == "127.0.0.1:8080"
    assert await found("auto:9") == "127.0.0.1:9"


async def test_auto_follows_the_route_whichever_it_is() -> None:
    """To another address of this machine, from another one."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
    assert await found("auto", picker="[::1]:9003") == "[::1]:8080"


async def test_aws_asks_the_metadata_service_with_a_token(ec2: FakeMetadataService) -> None:
    assert await found("aws:9", ec2) == "10.1.2.3:9"
    assert ec2.paths == ["PUT /latest/api/token", "GET /latest/meta-data/local-ipv4"]


async def test_aws_says_what_went_wrong(ec2: FakeMetadataService) -> None:
    ec2.status = 403
    with pytest.raises(AdvertiseError, match="answered 403"):
        await found("aws", ec2)
    ec2.status, ec2.address = 200, "<html>"
    with pytest.raises(AdvertiseError, match="is not an IP address"):
        await found("aws", ec2)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(AdvertiseError, match="does not answer"):
            await Advertise.parse("aws", 1).find(
                "127.0.0.1:9003", {METADATA_VARIABLE: f"http://127.0.0.1:{port}"}
            )


async def test_auto_without_a_route_says_so() -> None:
    with pytest.raises(AdvertiseError, match="no route"):
        await Advertise.parse("auto", 8080).find("no.such.host.invalid:9003")


@pytest.mark.parametrize("text", ["", "gpu-1:8080", "10.0.0.5", "auto:99999", "aws:x"])
def test_what_is_no_address_is_rejected(text: str) -> None:
    with pytest.raises(AddressError):
        Advertise.parse(text, 8080)
    assert Advertise.parse("auto", 8080).address is None
    assert Advertise.parse("10.0.0.5:1", 8080).address == Address("10.0.0.5", 1)


def test_tls_is_advertised_as_the_agent_itself_asks_unless_it_is_said() -> None:
    for text in ("10.0.0.5:1", "auto", "aws:9"):
        assert not Advertise.parse(text, 1).is_tls
        assert Advertise.parse(text, 1, is_tls=True).is_tls
        assert Advertise.parse(f"https://{text}", 1).is_tls
        assert not Advertise.parse(f"http://{text}", 1, is_tls=True).is_tls
    assert Advertise.parse("https://[fd00::5]:9", 1).address == Address("fd00::5", 9)
    with pytest.raises(AddressError, match="is not http"):
        Advertise.parse("grpc://10.0.0.5:1", 1)
