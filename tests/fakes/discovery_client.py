"""An Envoy as the discovery service sees one: it asks, takes versions over, or rejects them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

import grpc.aio

from extproc.pb.base_pb2 import Node
from extproc.pb.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from extproc.pb.endpoint_discovery_pb2_grpc import EndpointDiscoveryServiceStub
from extproc.pb.endpoint_pb2 import ClusterLoadAssignment

ENDPOINT_TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"


def _endpoints(channel: grpc.aio.Channel) -> Any:
    return EndpointDiscoveryServiceStub(channel).StreamEndpoints


class DiscoveryClient:
    """One stream; nothing is acknowledged unless the test says so."""

    def __init__(
        self,
        port: int,
        node_id: str = "fake",
        metadata: tuple[tuple[str, str], ...] = (),
        open_stream: Callable[[grpc.aio.Channel], Any] = _endpoints,
        type_url: str = ENDPOINT_TYPE,
    ) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self._node = Node(id=node_id)
        self._questions: asyncio.Queue[DiscoveryRequest | None] = asyncio.Queue()
        self._type_url = type_url
        self._call = open_stream(self._channel)(self._outgoing(), metadata=metadata)
        self.received: list[DiscoveryResponse] = []

    async def _outgoing(self) -> AsyncIterator[DiscoveryRequest]:
        while (question := await self._questions.get()) is not None:
            yield question

    async def __aenter__(self) -> DiscoveryClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call.cancel()
        await self._channel.close()

    def ask(
        self,
        *names: str,
        nonce: str = "",
        version: str = "",
        error: str | None = None,
        type_url: str | None = None,
    ) -> None:
        """Send any question, also an impossible one."""
        question = DiscoveryRequest(
            node=self._node,
            resource_names=names,
            response_nonce=nonce,
            version_info=version,
            type_url=self._type_url if type_url is None else type_url,
        )
        if error is not None:
            question.error_detail.code = 3
            question.error_detail.message = error
        self._questions.put_nowait(question)

    def leave(self) -> None:
        """Half-close: no more questions."""
        self._questions.put_nowait(None)

    async def read(self) -> DiscoveryResponse:
        """The next answer; raises `grpc.aio.AioRpcError` or `EOFError` when the stream ended."""
        answer = await asyncio.wait_for(self._call.read(), 10)
        if not isinstance(answer, DiscoveryResponse):
            if await self._call.code() is not grpc.StatusCode.OK:
                raise AssertionError(await self._call.details())
            raise EOFError
        self.received.append(answer)
        return answer

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """How the server ended the stream."""
        return await self._call.code(), await self._call.details()

    def acknowledge(self, answer: DiscoveryResponse, *names: str) -> None:
        self.ask(*(names or ("llama",)), nonce=answer.nonce, version=answer.version_info)

    async def read_and_acknowledge(self) -> DiscoveryResponse:
        answer = await self.read()
        self.acknowledge(answer)
        return answer


def assignments(answer: DiscoveryResponse) -> dict[str, dict[str, str]]:
    """By cluster name, each endpoint's `host:port` and the health that it is told with."""
    found = {}
    for resource in answer.resources:
        told = ClusterLoadAssignment.FromString(resource.value)
        found[told.cluster_name] = {
            f"{part.endpoint.address.socket_address.address}"
            f":{part.endpoint.address.socket_address.port_value}": _health(part.health_status)
            for locality in told.endpoints
            for part in locality.lb_endpoints
        }
    return found


def _health(number: int) -> str:
    return {0: "unknown", 3: "draining"}[number]
