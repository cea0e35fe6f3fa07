"""Endpoint discovery with the real Envoy: what it learns, when a pick reaches it, what it keeps.

Envoy's cluster is `override_host` over discovery; a pick is the destination header that a
client sends here in the picker's stead.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from extproc.core.address import Address
from extproc.core.fleet.membership import Member, Membership
from extproc.demo.port import free_port
from extproc.transport import ServiceTable
from extproc.transport.http2_server import Http2Server
from extproc.xds import EndpointDiscovery
from tests.fakes.listener import Listener

ENVOY = shutil.which("envoy")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(ENVOY is None, reason="no envoy on the PATH"),
]

BOOTSTRAP = """
node: {id: test, cluster: test}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: main
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: main
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{match: {prefix: /}, route: {cluster: llama, timeout: 0s}}]
          http_filters:
          - name: router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: llama
    type: EDS
    connect_timeout: 1s
    ignore_health_on_host_removal: true
    common_lb_config: {healthy_panic_threshold: {value: 0}, update_merge_window: 0s}
    eds_cluster_config:
      eds_config:
        resource_api_version: V3
        api_config_source:
          api_type: GRPC
          transport_api_version: V3
          grpc_services: [{envoy_grpc: {cluster_name: picker}}]
    HEALTH_CHECKS
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: override_host
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
            override_host_sources: [{header: x-gateway-destination-endpoint}]
            fallback_policy:
              policies:
              - typed_extension_config:
                  name: least_request
                  typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest}
  - name: picker
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: picker
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: PICKER_PORT}}}
"""  # noqa: E501  # type names are as long as they are
HEALTH_CHECKS = (
    "health_checks: [{timeout: 60s, interval: 0.1s, no_traffic_interval: 0.1s,"
    " healthy_threshold: 1, unhealthy_threshold: 1, http_health_check: {path: /health}}]"
)


async def eventually(is_true: Callable[[], bool]) -> None:
    """Let the loop run until it is so; fails after 20 s."""
    async with asyncio.timeout(20):
        while not is_true():  # noqa: ASYNC110  # asked from outside, as a person would
            await asyncio.sleep(0.005)


class Server:
    """Answers with its own address; `/slow` streams until the test lets it end."""

    def __init__(self) -> None:
        self.is_healthy = True
        self.may_end = asyncio.Event()
        self.running = 0
        self._listener = Listener(self._talk)

    async def start(self) -> Address:
        self.address = await self._listener.start()
        return self.address

    async def stop(self) -> None:
        self.may_end.set()
        await self._listener.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            if path == b"/slow":
                await self._stream(writer)
                continue
            status = b"503 No" if path == b"/health" and not self.is_healthy else b"200 OK"
            body = str(self.address).encode()
            head = b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
            writer.write(head + body)
            await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbegin\r\n")
        await writer.drain()
        self.running += 1
        await self.may_end.wait()
        writer.write(b"3\r\nend\r\n0\r\n\r\n")
        await writer.drain()


class Picker:
    """Serves discovery and nothing else; the test sets the fleet, unknown while it is empty."""

    def __init__(self, *addresses: Address, port: int = 0) -> None:
        self.routable: dict[Address, bool] = {}
        self._membership = Membership(1, tuple(Member(address) for address in addresses))
        self.discovery = EndpointDiscovery(lambda: self._membership, self._set_routable)
        table: ServiceTable = {}
        self.discovery.add_to(table)
        self._server = Http2Server(table, time.monotonic)
        self.port = self._server.bind("127.0.0.1", port)

    def _set_routable(self, address: Address, is_routable: bool, now: float) -> None:
        self.routable[address] = is_routable

    async def __aenter__(self) -> Picker:
        if self._membership.members:
            self.discovery.open()
        await self._server.start()
        return self

    async def __aexit__(self, *told: object) -> None:
        self.discovery.close()
        await self._server.stop(0.0)

    async def set(self, *addresses: Address, draining: tuple[Address, ...] = ()) -> None:
        """Change the fleet, and wait until every Envoy acknowledged it."""
        members = tuple(Member(a, is_draining=a in draining) for a in addresses)
        version = self._membership.version + 1
        self._membership = Membership(version, members)
        self.discovery.membership_changed()
        self.discovery.open()
        await eventually(lambda: self._is_known(version))

    def _is_known(self, version: int) -> bool:
        envoys = self.discovery.envoys()
        return bool(envoys) and all(e.acknowledged_version >= version for e in envoys)


class Envoy:
    """A running Envoy, asked through its listener and its admin port."""

    def __init__(self, url: str, admin: str, client: httpx.AsyncClient) -> None:
        self.url = url
        self._admin = admin
        self.client = client

    async def pick(self, address: Address) -> str:
        """Who serves a request that was sent to `address`; the status where nobody does."""
        headers = {"x-gateway-destination-endpoint": str(address)}
        answer = await self.client.get(f"{self.url}/", headers=headers)
        return answer.text if answer.status_code == 200 else str(answer.status_code)

    async def fall_back(self) -> str:
        """Who serves a request without a destination."""
        answer = await self.client.get(f"{self.url}/")
        return answer.text if answer.status_code == 200 else str(answer.status_code)

    async def hosts(self) -> dict[str, str]:
        """The hosts of the cluster by address, with their health flags, as /clusters tells."""
        text = (await self.client.get(f"{self._admin}/clusters")).text
        parts = [line.split("::") for line in text.splitlines()]
        flags = [part for part in parts if part[0] == "llama" and part[2:3] == ["health_flags"]]
        return {address: told for _, address, _, told in flags}

    async def becomes(self, address: Address, flags: str) -> None:
        async with asyncio.timeout(20):
            while (await self.hosts()).get(str(address)) != flags:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running_envoy(
    folder: Path, picker_port: int, health_checks: str = ""
) -> AsyncIterator[Envoy]:
    """Start Envoy on ports of its own and wait until it answers; stop it at the end."""
    assert ENVOY is not None
    config, told = folder / "envoy.yaml", folder / "admin"
    text = BOOTSTRAP.replace("PICKER_PORT", str(picker_port))
    config.write_text(text.replace("HEALTH_CHECKS", health_checks))
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(ENVOY, "-c", str(config), "--admin-address-path", str(told)),
            *("--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"),
            stdout=log,
            stderr=log,
        )
    try:
        async with httpx.AsyncClient(timeout=20) as client, asyncio.timeout(60):
            while not (told.exists() and told.read_text()):
                assert process.returncode is None, (folder / "log").read_text()
                await asyncio.sleep(0.02)
            admin = f"http://{told.read_text()}"
            while not (listeners := await _listeners(client, admin)):  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.02)
        async with httpx.AsyncClient(timeout=20) as client:
            yield Envoy(f"http://127.0.0.1:{listeners[0]}", admin, client)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listeners(client: httpx.AsyncClient, admin: str) -> list[int]:
    """The ports of Envoy's listeners once it serves, none before."""
    if (await client.get(f"{admin}/ready")).status_code != 200:
        return []
    told = json.loads((await client.get(f"{admin}/listeners?format=json")).text)
    return [
        status["local_address"]["socket_address"]["port_value"]
        for status in told.get("listener_statuses", [])
    ]


@pytest.fixture
async def servers() -> AsyncIterator[list[Server]]:
    started = [Server(), Server(), Server()]
    for server in started:
        await server.start()
    yield started
    for server in started:
        await server.stop()


async def test_endpoints_come_and_go(servers: list[Server], tmp_path: Path) -> None:
    """A pick reaches an endpoint from its acknowledgement on; a removed one is gone at once."""
    a, b, c = (server.address for server in servers)
    async with (
        Picker(a) as picker,
        running_envoy(tmp_path, picker.port) as envoy,
    ):
        assert await envoy.hosts() == {str(a): "healthy"}
        assert await envoy.pick(b) == str(a)
        await picker.set(a, b, c)
        assert picker.routable == {a: True, b: True, c: True}
        assert [await envoy.pick(host) for host in (c, b, a)] == [str(c), str(b), str(a)]
        await picker.set(b)
        assert await envoy.hosts() == {str(b): "healthy"}
        assert await envoy.pick(a) == str(b)
        await picker.set()
        assert await envoy.hosts() == {}
        assert await envoy.pick(b) == "503"
        await picker.set(a)
        assert await envoy.pick(a) == str(a)


async def test_draining_is_left_alone_by_the_fallback_only(
    servers: list[Server], tmp_path: Path
) -> None:
    """`override_host` does not look at health: whom to spare is the picker's decision."""
    a, b, _ = (server.address for server in servers)
    async with (
        Picker(a, b) as picker,
        running_envoy(tmp_path, picker.port) as envoy,
    ):
        await picker.set(a, b, draining=(a,))
        assert (await envoy.hosts())[str(a)] == "/eds_status_draining"
        assert {await envoy.fall_back() for _ in range(10)} == {str(b)}
        assert await envoy.pick(a) == str(a)


async def test_envoys_own_health_check_guides_the_fallback_only(
    servers: list[Server], tmp_path: Path
) -> None:
    """A host that Envoy holds unhealthy, or has not yet checked, can still be picked."""
    a, b, c = (server.address for server in servers)
    async with (
        Picker(a, b) as picker,
        running_envoy(tmp_path, picker.port, HEALTH_CHECKS) as envoy,
    ):
        servers[0].is_healthy = servers[2].is_healthy = False
        await envoy.becomes(a, "/failed_active_hc")
        assert {await envoy.fall_back() for _ in range(10)} == {str(b)}
        assert await envoy.pick(a) == str(a)
        await picker.set(a, b, c)
        assert await envoy.pick(c) == str(c)
        await picker.set(a, b)
        assert str(c) not in await envoy.hosts()
        assert await envoy.pick(c) == str(b)


async def test_running_request_outlives_its_endpoint(servers: list[Server], tmp_path: Path) -> None:
    """Removed from discovery in mid-answer: the answer runs to its end."""
    a, b, _ = (server.address for server in servers)
    async with (
        Picker(a, b) as picker,
        running_envoy(tmp_path, picker.port, HEALTH_CHECKS) as envoy,
    ):
        headers = {"x-gateway-destination-endpoint": str(a)}
        async with envoy.client.stream("GET", f"{envoy.url}/slow", headers=headers) as answer:
            chunks = answer.aiter_raw()
            assert await anext(chunks) == b"begin"
            await picker.set(b)
            assert str(a) not in await envoy.hosts()
            servers[0].may_end.set()
            assert b"".join([chunk async for chunk in chunks]) == b"end"


async def test_hosts_outlive_the_picker(servers: list[Server], tmp_path: Path) -> None:
    """The picker goes and comes back without knowing its fleet yet: Envoy serves on."""
    a, b, _ = (server.address for server in servers)
    async with AsyncExitStack() as stack:
        async with Picker(a, port=free_port()) as picker:
            envoy = await stack.enter_async_context(running_envoy(tmp_path, picker.port))
        assert await envoy.pick(a) == str(a)
        successor = await stack.enter_async_context(Picker(port=picker.port))
        await eventually(lambda: len(successor.discovery.envoys()) == 1)
        assert await envoy.pick(a) == str(a)
        await successor.set(a, b)
        assert await envoy.hosts() == {str(a): "healthy", str(b): "healthy"}
