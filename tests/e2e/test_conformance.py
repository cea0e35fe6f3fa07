"""The routing tests of the Gateway API inference extension, replayed over the real Envoy.

Each test here is named after the one in kubernetes-sigs/gateway-api-inference-extension,
conformance/tests, and claims what that one does, with the same cases and, in the long run, the same
100 requests, 10 at a time. Those steer their own endpoint picker by the header
`test-epp-endpoint-selection`. This picker obeys no header of a client; so a filter of Envoy turns
that one into the protocol's subset hint, by which a gateway says whom the picker may choose.

What conformance does with Kubernetes' objects (accepted pools, resolved references) is the
gateway's affair.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from extproc.core.address import Address
from extproc.demo.port import free_ports
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions, Mode
from tests.e2e.gateway_envoys import Print, hint_from, istio, with_filter
from tests.e2e.one_process import Running, running
from tests.fakes.echo_server import EchoServer, echo_server
from tests.long_run import IS_LONG_RUN

pytestmark = pytest.mark.e2e

SELECTION: Final = "test-epp-endpoint-selection"
BODY: Final = json.dumps(
    {
        "model": "conformance-fake-model",
        "prompt": "Answer with no disclaimers: What are the advantages and disadvantages of "
        "genetically modified food?",
    }
).encode()
CONSISTENT = 3
"""Conformance asks until so many rounds in a row were answered as they should be."""
PATHS: Final = ("/primary-gateway-test", "/v1/completions")
"""Conformance's own, which takes no slot here and has to be opened, and one that takes one."""
REQUESTS: Final = 100 if IS_LONG_RUN else 25
AT_ONCE: Final = 10
SLOTS: Final = 4


@dataclass
class Pool:
    """Three pods with an address each, and an echo server at each of their ports."""

    stack: Running
    ips: list[str]
    ports: list[int]
    servers: list[EchoServer]

    async def request(self, path: str, selection: str, body: bytes = BODY) -> httpx.Response:
        return await self.stack.client.post(
            path,
            content=body,
            headers={"host": "primary.example.com", SELECTION: selection},
        )

    def name_of(self, ip: str, port: int) -> str:
        """That of the pod, or the address where nobody has said another."""
        return self.stack.service.dispatcher.fleet.name_of(Address(ip, port))

    async def ready(self) -> None:
        """The picker may choose each of them, and Envoy knows them."""
        for server in self.servers:
            host, _, port = server.address.partition(":")
            await self.stack.until_seen(Address(host, int(port)))

    async def stays_within(self, selection: str, allowed: Mapping[str, set[int]]) -> None:
        """Every request is answered, by an allowed pod at an allowed port, and what arrived there
        is what was sent."""
        for path in PATHS:
            for server in self.servers:
                server.reached.clear()
            limit = asyncio.Semaphore(AT_ONCE)

            async def one(limit: asyncio.Semaphore = limit, path: str = path) -> httpx.Response:
                async with limit:
                    return await self.request(path, selection)

            for answer in await asyncio.gather(*(one() for _ in range(REQUESTS))):
                assert answer.status_code == 200, answer.text
                ip, _, port = answer.headers["x-echo"].partition(":")
                assert ip in allowed, f"{answer.headers['x-echo']} is not in {selection}"
                assert int(port) in allowed[ip]
            reached = [one for server in self.servers for one in server.reached]
            assert len(reached) == REQUESTS
            for request in reached:
                assert (request.method, request.target, request.body) == ("POST", path, BODY)
                assert request.headers["host"] == "primary.example.com"


def as_coxswain_prints(servers: list[str]) -> Print:
    """`envoy/gateway.yaml`, which learns the servers from the picker."""

    def printed(options: EnvoyOptions) -> str:
        return with_filter(bootstrap(replace(options, mode=Mode.GATEWAY)), hint_from(SELECTION))

    return printed


def as_istio_prints(servers: list[str]) -> Print:
    """Who served is told by the protocol's metadata alone."""
    return istio(servers, filters=[hint_from(SELECTION)])


@pytest.fixture(params=[as_coxswain_prints, as_istio_prints], ids=["coxswain", "istio"])
def gateway(request: pytest.FixtureRequest) -> object:
    return request.param


Sources = Callable[[list[str], list[int]], Awaitable[dict[str, Any]]]
"""The settings by which a picker finds pods at these addresses and ports."""


async def listed(ips: list[str], ports: list[int]) -> dict[str, Any]:
    return {"endpoints": [f"{ip}:{port}" for ip in ips for port in ports]}


@pytest.fixture
def sources() -> Sources:
    """The settings name the pods here; test_kubernetes_conformance.py has another one."""
    return listed


@asynccontextmanager
async def pool(
    folder: Path, gateway: object, sources: Sources, *, ports: int = 1
) -> AsyncIterator[Pool]:
    ips = [f"127.0.1.{number}" for number in (1, 2, 3)]
    numbers = list(free_ports(ports))
    async with AsyncExitStack() as exits:
        servers = [
            await exits.enter_async_context(echo_server(ip, port, slots=SLOTS))
            for ip in ips
            for port in numbers
        ]
        addresses = [server.address for server in servers]
        assert callable(gateway)
        opened = {"envoy": {"open_paths": [f"POST {PATHS[0]}"]}}
        values = {**await sources(ips, numbers), **opened}
        stack = await exits.enter_async_context(running(folder, values, printed=gateway(addresses)))
        found = Pool(stack, ips, numbers, servers)
        await found.ready()
        yield found


async def test_gateway_following_epp_routing(
    tmp_path: Path, gateway: object, sources: Sources
) -> None:
    """GatewayFollowingEPPRouting: traffic reaches the pods that the picker named, and no other."""
    async with pool(tmp_path, gateway, sources) as pods:
        ips, ports = pods.ips, set(pods.ports)
        for ip in ips:
            answer = await pods.request(PATHS[0], ip)
            assert (answer.status_code, answer.headers["x-echo"].partition(":")[0]) == (200, ip)
        for chosen in ([ips[2]], ips[:2], ips):
            await pods.stays_within(",".join(chosen), dict.fromkeys(chosen, ports))


async def test_gateway_following_epp_routing_with_data_parallelism(
    tmp_path: Path, gateway: object, sources: Sources
) -> None:
    """GatewayFollowingEPPRoutingWithDataParallelism: each pod serves at three ports, and some of
    them may be named alone."""
    async with pool(tmp_path, gateway, sources, ports=3) as pods:
        (first, second, third), ports = pods.ips, set(pods.ports)
        low, middle, high = pods.ports
        await pods.stays_within(second, {second: ports})
        await pods.stays_within(f"{first},{third}:{middle}", {first: ports, third: {middle}})
        await pods.stays_within(
            f"{first},{second}:{low},{second}:{high},{third}",
            {first: ports, second: {low, high}, third: ports},
        )


async def test_gateway_destination_endpoint_served(
    tmp_path: Path, gateway: object, sources: Sources
) -> None:
    """GatewayDestinationEndpointServed: the picker learns who served, and says so to the client."""
    async with pool(tmp_path, gateway, sources) as pods:
        (port,) = pods.ports
        for path in PATHS:
            for ip in pods.ips:
                answer = await pods.request(path, ip)
                assert answer.status_code == 200
                assert answer.headers["x-echo"] == f"{ip}:{port}"
                assert answer.headers["x-coxswain-endpoint"] == pods.name_of(ip, port)


async def test_epp_unavailable_fail_open(tmp_path: Path, gateway: object, sources: Sources) -> None:
    """EppUnAvailableFailOpen: with the picker gone, requests reach any pod of the pool."""
    async with pool(tmp_path, gateway, sources) as pods:
        ip, port = pods.ips[0], pods.ports[0]
        answer = await pods.request(PATHS[0], ip)
        assert (answer.status_code, answer.headers["x-echo"]) == (200, f"{ip}:{port}")
        await pods.stack.service.stop()

        # In full duplex Envoy answers 500 to a body of which the lost picker was sent a part.
        body = b"" if gateway is as_istio_prints else BODY

        async def serves() -> bool:
            answers = [await pods.request(path, ip, body) for path in PATHS]
            return all(
                answer.status_code == 200
                and answer.headers["x-echo"] in {server.address for server in pods.servers}
                and "x-coxswain-endpoint" not in answer.headers
                for answer in answers
            )

        in_a_row = 0
        async with asyncio.timeout(60):
            while in_a_row < CONSISTENT:
                in_a_row = in_a_row + 1 if await serves() else 0
                await asyncio.sleep(0.05)
