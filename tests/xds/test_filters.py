"""Extension config discovery over real loopback gRPC, with fake Envoys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from extproc.pb.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from extproc.transport import ServiceTable
from extproc.xds import FilterDiscovery
from extproc.xds.filters import STREAM_FILTERS
from extproc.xds.subscription import FILTER_TYPE
from tests.fakes.data_plane import bound_server
from tests.fakes.discovery_client import DiscoveryClient
from tests.fakes.log import logged
from tests.fakes.picker import until

pytestmark = pytest.mark.usefixtures("each_transport")

NAME = "coxswain.client_keys"


class Served:
    """The service on a port of its own."""

    def __init__(self) -> None:
        self.discovery = FilterDiscovery()
        table: ServiceTable = {}
        self.discovery.add_to(table)
        self.server, self.port = bound_server(table)

    def envoy(self) -> DiscoveryClient:
        return DiscoveryClient(self.port, open_stream=_filters, type_url=FILTER_TYPE)


def _filters(channel: grpc.aio.Channel) -> Any:
    return channel.stream_stream(
        STREAM_FILTERS,
        request_serializer=DiscoveryRequest.SerializeToString,
        response_deserializer=DiscoveryResponse.FromString,
    )


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    subject = Served()
    await subject.server.start()
    yield subject
    subject.discovery.close()
    await subject.server.stop(0.0)


async def told(envoy: DiscoveryClient) -> bytes:
    """What the next answer holds; it is acknowledged."""
    answer = await envoy.read_and_acknowledge()
    (resource,) = answer.resources
    assert answer.type_url == resource.type_url == FILTER_TYPE
    return resource.value


async def test_the_newest_is_sent_to_each(served: Served) -> None:
    """Also to one that asked before there was any; the same again is no news."""
    async with served.envoy() as early, served.envoy() as late:
        early.ask(NAME)
        served.discovery.publish(b"one")
        assert await told(early) == b"one"
        served.discovery.publish(b"one")
        served.discovery.publish(b"two")
        assert await told(early) == b"two"
        late.ask(NAME)
        assert await told(late) == b"two"


async def test_a_rejection_is_logged_and_the_next_version_sent(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the same one again."""
    served.discovery.publish(b"one")
    async with served.envoy() as envoy:
        envoy.ask(NAME)
        answer = await envoy.read()
        envoy.ask(NAME, nonce=answer.nonce, error="bad script")
        await until(lambda: any("bad script" in each.getMessage() for each in logged(caplog)))
        served.discovery.publish(b"two")
        assert await told(envoy) == b"two"


async def test_streams_end_with_the_service(served: Served) -> None:
    """And those that come later at once."""
    async with served.envoy() as envoy:
        envoy.ask(NAME)
        served.discovery.publish(b"one")
        assert await told(envoy) == b"one"
        served.discovery.close()
        assert (await envoy.status())[0] is grpc.StatusCode.OK
    async with served.envoy() as envoy:
        assert (await envoy.status())[0] is grpc.StatusCode.OK
