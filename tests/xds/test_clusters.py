"""The cluster discovery service over real loopback gRPC, with fake Envoys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from extproc.header_names import ABILITIES
from extproc.pb.cluster_discovery_pb2_grpc import ClusterDiscoveryServiceStub
from extproc.security.trust import Trust
from extproc.transport import ServiceTable
from extproc.xds import ClusterDiscovery
from extproc.xds.gate import Gate
from extproc.xds.subscription import CLUSTER_TYPE, ENDPOINT_TYPE
from tests.fakes.data_plane import bound_server
from tests.fakes.discovery_client import DiscoveryClient
from tests.fakes.log import logged


class Served:
    """A cluster discovery service on a port of its own; what it serves are a word's bytes."""

    def __init__(self) -> None:
        self.gate = Gate(hold_s=3600)
        self.refused: frozenset[str] = frozenset()
        self.discovery = ClusterDiscovery(self.gate, self._set_refused)
        table: ServiceTable = {}
        self.discovery.add_to(table)
        self.server, self.port = bound_server(table)

    def _set_refused(self, profiles: frozenset[str]) -> None:
        self.refused = profiles

    def publish(self, word: str, *trusts: Trust) -> None:
        def write(abilities: frozenset[str], chosen: tuple[Trust, ...]) -> bytes:
            return " ".join(
                [word, str(sorted(abilities)), *(str(each.ca_pem) for each in chosen)]
            ).encode()

        self.discovery.publish({each.profile: each for each in trusts}, write)

    def envoy(self, *abilities: str) -> DiscoveryClient:
        metadata = tuple((ABILITIES, ability) for ability in abilities)
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
    await subject.server.stop(0.0)


async def told(envoy: DiscoveryClient) -> str:
    """What the next answer holds; it is acknowledged."""
    answer = await envoy.read_and_acknowledge()
    (resource,) = answer.resources
    assert answer.type_url == resource.type_url == CLUSTER_TYPE
    return resource.value.decode()


async def test_the_newest_is_sent_to_each_by_its_abilities(served: Served) -> None:
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


async def test_nobody_is_reported_before_the_fleet_is_known(served: Served) -> None:
    """And then only what counts by then."""
    served.publish("early")
    async with served.envoy() as envoy:
        envoy.ask()
        served.publish("late")
        served.gate.open()
        assert await told(envoy) == "late []"


async def test_what_envoy_rejects_is_reported_in_the_log_and_not_sent_again(
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
    (line,) = (record for record in logged(caplog) if record.levelno == logging.ERROR)
    assert "rejected version 1" in line.getMessage()
    assert line.getMessage().endswith("no such authority")


async def refuse(envoy: DiscoveryClient) -> None:
    """The next answer, with the words of a real one."""
    answer = await envoy.read()
    envoy.ask(nonce=answer.nonce, error="Failed to load trusted CA certificates from <inline>")


async def test_cas_that_envoy_rejects_hold_up_no_others(served: Served) -> None:
    """They are told, until the file holds others or nobody wants them any more."""
    ours, bad = Trust(profile="a", ca_pem="ours"), Trust(profile="b", ca_pem="bad")
    served.gate.open()
    served.publish("one", ours)
    async with served.envoy() as envoy:
        envoy.ask()
        assert await told(envoy) == "one [] ours"
        served.publish("two", ours, bad)
        await refuse(envoy)
        assert await told(envoy) == "two [] ours"
        assert served.refused == {"b"}
        third = Trust(profile="c", ca_pem="third")
        served.publish("three", ours, bad, third)
        assert await told(envoy) == "three [] ours third"
        served.publish("four", ours, Trust(profile="b", ca_pem="mended"), third)
        assert await told(envoy) == "four [] ours mended third"
        assert served.refused == frozenset()


async def test_what_each_envoy_rejects_is_its_own_affair(served: Served) -> None:
    """Another one gets all of it; what one of them rejects is told as long as it is connected."""
    ours, bad = Trust(profile="a", ca_pem="ours"), Trust(profile="b", ca_pem="bad")
    served.gate.open()
    served.publish("one", ours, bad)
    async with served.envoy() as lenient:
        lenient.ask()
        assert await told(lenient) == "one [] ours bad"
        async with served.envoy() as strict:
            strict.ask()
            await refuse(strict)  # both
            assert await told(strict) == "one [] ours"
            await refuse(strict)  # the rest
            assert await told(strict) == "one [] ours"
            assert served.refused == {"b"}
        while served.refused:  # noqa: ASYNC110  # the end of a stream wakes nobody
            await asyncio.sleep(0.001)
        served.publish("two", ours, bad)
        assert await told(lenient) == "two [] ours bad"


async def test_a_new_stream_gets_what_was_taken_before(served: Served) -> None:
    """The content that an Envoy rejects must not cost it the one that it holds, when its stream
    was lost meanwhile."""
    served.gate.open()
    served.publish("one", Trust(profile="a", ca_pem="ours"))
    async with served.envoy() as envoy:
        envoy.ask()
        assert await told(envoy) == "one [] ours"
        served.publish("two", Trust(profile="a", ca_pem="bad"))
        await refuse(envoy)
        assert await told(envoy) == "two [] ours"
    async with served.envoy() as again:
        again.ask()
        await refuse(again)
        assert await told(again) == "two [] ours"
        assert served.refused == {"a"}


async def test_another_type_is_rejected(served: Served) -> None:
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
