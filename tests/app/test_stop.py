"""Claims about the stop of extproc/app/service.py, as Envoy, clients and supervisors see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2

from extproc.app.service import Service
from extproc.pb import external_processor_pb2 as pb
from extproc.settings import Settings
from extproc.stream.envoy.codec import PROCESS
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import EnvoyStream
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.picker import until


class Picker:
    """A service with one slot, which a stream holds while another waits."""

    def __init__(self, service: Service, channel: grpc.aio.Channel) -> None:
        self.service = service
        self._channel = channel
        self._check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    def stream(self) -> EnvoyStream:
        method: grpc.aio.StreamStreamMultiCallable[bytes, pb.ProcessingResponse]
        method = self._channel.stream_stream(
            PROCESS, response_deserializer=pb.ProcessingResponse.FromString
        )
        return EnvoyStream(method())

    async def health(self) -> str:
        """What Envoy's health check of the picker's cluster is told."""
        answer = await self._check(health_pb2.HealthCheckRequest(service=""))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


@asynccontextmanager
async def picker(drain_timeout_s: float) -> AsyncIterator[Picker]:
    """Serving, before a llama-server that is ready; the test stops it."""
    async with FakeLlamaServer((False,)) as llama:
        settings = Settings.model_validate(
            {
                "listen": dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0"),
                "endpoints": [str(llama.address)],
                "drain_timeout_s": drain_timeout_s,
            }
        )
        service = Service(settings)
        await service.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
            await until(lambda: bool(service.dispatcher.passing()))
            yield Picker(service, channel)


async def test_a_stop_waits_for_who_runs_and_sends_the_others_away() -> None:
    """Not ready from the first moment, so that Envoy asks nobody here any more; whoever waits is
    refused; whoever runs may finish, and then the process can end."""
    async with picker(drain_timeout_s=600) as one:
        running, waiting = one.stream(), one.stream()
        assert envoy.destination(await running.ask(envoy.request_headers()))
        await waiting.hold()
        assert await one.health() == "SERVING"
        stopping = asyncio.create_task(one.service.stop())
        assert envoy.rejection(await waiting.receive()) == (503, "shutting-down")
        await waiting.half_close()
        assert await one.health() == "NOT_SERVING"
        late = one.stream()
        assert await late.status() is grpc.StatusCode.UNAVAILABLE
        async with httpx.AsyncClient(trust_env=False) as client:
            ready = await client.get(f"http://127.0.0.1:{one.service.http_port}/readyz")
        assert ready.status_code == 503
        assert not stopping.done()
        await running.ask(envoy.response_headers())
        await running.half_close()
        assert await running.status() is grpc.StatusCode.OK
        await stopping


async def test_a_stop_waits_no_longer_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    """Then it goes all the same, and says in one line how many it left running."""
    async with picker(drain_timeout_s=0.01) as one:
        running = one.stream()
        assert envoy.destination(await running.ask(envoy.request_headers()))
        await one.service.stop()
    told = [each.getMessage() for each in caplog.records if "still run" in each.getMessage()]
    assert told == ["exchanges that still run after 0.01 s: 1"]


async def test_a_stop_is_logged_from_its_first_moment_to_its_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator sees that the signal came, what is waited for, and that it was not a crash."""
    async with picker(drain_timeout_s=0.01) as one:
        running, waiting = one.stream(), one.stream()
        assert envoy.destination(await running.ask(envoy.request_headers()))
        await waiting.hold()
        caplog.clear()  # what was logged at the start, where a test before wanted that
        with caplog.at_level(logging.INFO, "coxswain.service"):
            await one.service.stop()
    told = [record.getMessage() for record in caplog.records if record.name == "coxswain.service"]
    assert told[0] == (
        "stopping; queued requests, rejected now: 1; running exchanges, ended after 0.01 s: 1"
    )
    assert told[-1] == "stopped"
