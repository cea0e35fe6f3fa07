"""The cluster discovery service over real loopback gRPC, with fake Envoys."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from extproc.pb.cluster_discovery_pb2_grpc import ClusterDiscoveryServiceStub
from extproc.xds import ClusterDiscovery
from extproc.xds.abilities import HEADER
from extproc.xds.gate import Gate
from extproc.xds.subscription import CLUSTER_TYPE, ENDPOINT_TYPE
from tests.fakes.discovery_client import DiscoveryClient


class Served:
    """A cluster discovery service on a port of its own; what it serves are a word's bytes."""

    def __init__(self) -> None:
        self.gate = Gate(hold_s=3600)
        self.discovery = ClusterDiscovery(self.gate)
        self.server = grpc.aio.server()
        self.discovery.add_to(self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def publish(self, word: str) -> None:
        self.discovery.publish(lambda abilities: f"{word} {sorted(abilities)}".encode())

    def envoy(self, *abilities: str) -> DiscoveryClient:
        metadata = tuple((HEADER, ability) for ability in abilities)
        return DiscoveryClient(
            self.port,
            metadata=metadata,
            open_stream=lambda channel: ClusterDiscoveryServiceStub(channel).StreamClusters,
            type_url=CLUSTER_TYPE,
        )


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    subject = Served()
    await subject.server.start()
    yield subject
    subject.discovery.close()
    subject.gate.close()
    await subject.server.stop(None)


async def told(envoy: DiscoveryClient) -> str:
    """What the next answer holds; it is acknowledged."""
    answer = await envoy.read_and_acknowledge()
    (resource,) = answer.resources
    assert answer.type_url == resource.type_url == CLUSTER_TYPE
    return resource.value.decode()


async def test_the_newest_is_told_to_each_by_its_abilities(served: Served) -> None:
    """Whatever names it asks for; once at the start, and once for each change."""
    served.gate.open()
    served.publish("one")
    async with served.envoy("keys") as able, served.envoy() as plain:
        able.ask()
        plain.ask("*")
        assert await told(able) == "one ['keys']"
        assert await told(plain) == "one []"
        served.publish("two")
        assert await told(able) == "two ['keys']"
        assert await told(plain) == "two []"


async def test_nobody_is_told_before_the_fleet_is_known(served: Served) -> None:
    """And then only what counts by then."""
    served.publish("early")
    async with served.envoy() as envoy:
        envoy.ask()
        served.publish("late")
        served.gate.open()
        assert await told(envoy) == "late []"


async def test_what_envoy_refuses_is_told_in_the_log_and_not_sent_again(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.gate.open()
    served.publish("bad")
    async with served.envoy() as envoy:
        envoy.ask()
        answer = await envoy.read()
        envoy.ask(nonce=answer.nonce, error="no\nsuch authority")
        served.publish("good")
        assert await told(envoy) == "good []"
    (line,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert "refused version 1" in line.getMessage()
    assert line.getMessage().endswith("no such authority")


async def test_another_type_is_refused(served: Served) -> None:
    async with served.envoy() as envoy:
        envoy.ask(type_url=ENDPOINT_TYPE)
        code, text = await envoy.status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert CLUSTER_TYPE in text


async def test_streams_end_when_the_picker_does(served: Served) -> None:
    served.gate.open()
    served.publish("one")
    async with served.envoy() as envoy:
        envoy.ask()
        assert await told(envoy) == "one []"
        served.discovery.close()
        assert (await envoy.status())[0] is grpc.StatusCode.OK
