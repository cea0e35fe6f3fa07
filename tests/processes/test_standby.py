"""Claims about extproc/processes/standby.py and pipe.py, over loopback: a leader of the test
accepts what a standby passes on."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace

import httpx
import pytest

from extproc.admin.auth.peer import PASSED_ON
from extproc.demo.port import free_ports
from extproc.demo.process import until
from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes import standby as standby_module
from extproc.processes.fronts.handshake import HandshakeServer
from extproc.processes.standby import LEAVE_S, QUIET_S, Arrival, Page, Standby
from extproc.settings import Settings
from extproc.settings.cluster_section import ClusterSettings
from extproc.settings.listen_section import ListenSettings
from extproc.settings.scale_section import KedaSettings
from tests.fakes.envoy_stream import eventually
from tests.fakes.fronts import settle

MEGABYTES = 4 << 20


class Leader:
    """Accepts connections of members, and serves an echo behind them."""

    def __init__(self) -> None:
        self.greetings: list[pb.Greeting] = []
        self.callers: list[int] = []
        self.port = 0
        self.open = 0
        """The connections that have reached the echo."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Leader]:
        loop = asyncio.get_running_loop()
        echo = await asyncio.start_server(self._echo, "127.0.0.1", 0)
        host, port = echo.sockets[0].getsockname()[:2]

        def accept(greeting: pb.Greeting) -> asyncio.Protocol:
            self.greetings.append(greeting)
            return Arrival(host, port, greeting.peer)

        server = await loop.create_server(lambda: HandshakeServer(accept, loop), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            echo.close()
            await eventually(lambda: self.open == 0)
            await settle()

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers.append(writer.get_extra_info("peername")[1])
        self.open += 1
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
        self.open -= 1


def page(path: str) -> Page:
    return 200, "text/plain", path.encode()


@asynccontextmanager
async def standing_by(
    leader_port: int, keda: int | None = None
) -> AsyncIterator[tuple[Standby, int, int]]:
    admin, http = free_ports(2)
    settings = Settings(
        fronts=1,
        keda=KedaSettings(listen=None if keda is None else f"127.0.0.1:{keda}"),
        listen=ListenSettings(admin=f"127.0.0.1:{admin}", http=f"127.0.0.1:{http}"),
        cluster=ClusterSettings(
            name="c", valkey=("redis://127.0.0.1:1",), advertise="127.0.0.1:9004"
        ),
    )
    standby = Standby(settings, page)
    standby.follow({"leader": "a/1", "epoch": 3, "address": f"127.0.0.1:{leader_port}"})
    try:
        async with asyncio.timeout(60):
            for port in (admin, http, *([] if keda is None else [keda])):
                await until(partial(listens, port))
        yield standby, admin, http
    finally:
        await standby.stop()


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def is_closed(port: int) -> bool:
    return not await listens(port)


async def test_bytes_go_to_the_leader_and_back_at_the_pace_of_the_slower() -> None:
    async with Leader().running() as leader, standing_by(leader.port) as (_, admin, _http):
        reader, writer = await asyncio.open_connection("127.0.0.1", admin)
        sent = bytes(range(256)) * (MEGABYTES // 256)
        writer.write(sent)
        async with asyncio.timeout(60):
            assert await reader.readexactly(len(sent)) == sent
        greeting = leader.greetings[-1]
        assert greeting.purpose == pb.Greeting.PURPOSE_ADMIN
        assert (greeting.leader_id, greeting.epoch, greeting.peer) == ("a/1", 3, "127.0.0.1")
        caller = ("127.0.0.1", leader.callers[-1])
        assert PASSED_ON[caller] == "127.0.0.1", "the caller is known before its first byte"
        writer.close()
        await eventually(lambda: not PASSED_ON)


async def test_keda_reaches_the_leader_at_each_member() -> None:
    """A Service sends its connection to any of them, and it stays there."""
    [keda] = free_ports(1)
    async with Leader().running() as leader, standing_by(leader.port, keda):
        reader, writer = await asyncio.open_connection("127.0.0.1", keda)
        writer.write(b"ping")
        async with asyncio.timeout(60):
            assert await reader.readexactly(4) == b"ping"
        assert leader.greetings[-1].purpose == pb.Greeting.PURPOSE_KEDA
        writer.close()


async def test_callers_that_say_nothing_are_few_and_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each port has its number; who does not say which page it wants is not waited for."""
    monkeypatch.setattr(standby_module, "connections", lambda _: 3)
    monkeypatch.setattr(standby_module, "HEADERS_S", 0.3)
    leader = Leader()
    async with leader.running(), standing_by(leader.port) as (_, admin, http):
        silent = [await asyncio.open_connection("127.0.0.1", http) for _ in range(6)]
        talking = [await asyncio.open_connection("127.0.0.1", admin) for _ in range(2)]
        async with asyncio.timeout(60):
            for reader, writer in silent:
                assert await reader.read() == b""
                writer.close()
            for reader, writer in talking:
                writer.write(b"ping")
                assert await reader.readexactly(4) == b"ping"
                writer.close()
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.get(f"http://127.0.0.1:{http}/healthz")
                assert answer.status_code == 200


async def test_pages_about_the_member_are_its_own() -> None:
    async with Leader().running() as leader, standing_by(leader.port) as (_, _admin, http):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{http}", timeout=60) as client:
            for path in ("/healthz", "/readyz", "/metrics"):
                answer = await client.get(path)
                assert (answer.status_code, answer.text) == (200, path)
        purposes = {greeting.purpose for greeting in leader.greetings}
        assert purposes <= {pb.Greeting.PURPOSE_ADMIN}, "of who looked whether that port is open"
        reader, writer = await asyncio.open_connection("127.0.0.1", http)
        writer.write(b"GET /sta")
        writer.write(b"tus HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(60):
            assert await reader.readexactly(24) == b"GET /status HTTP/1.1\r\n\r\n"
        assert leader.greetings[-1].purpose == pb.Greeting.PURPOSE_HTTP
        writer.close()


@pytest.mark.parametrize("is_new", [False, True])
async def test_connections_end_with_their_leader(is_new: bool) -> None:
    """A caller connects again, and reaches the next one."""
    async with Leader().running() as leader, standing_by(leader.port) as (standby, admin, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", admin)
        writer.write(b"x")
        async with asyncio.timeout(60):
            assert await reader.readexactly(1) == b"x"
            [dead] = free_ports(1)
            term = {"leader": "b/1", "epoch": 4, "address": f"127.0.0.1:{dead}"}
            if is_new:
                standby.follow(term)
            else:
                await standby.stop()
            assert await reader.read() == b""
        writer.close()
        if is_new:
            reader, writer = await asyncio.open_connection("127.0.0.1", admin)
            async with asyncio.timeout(60):
                assert await reader.read() == b"", "nobody is there"
            writer.close()


async def test_a_command_ends_at_the_standby_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one listens already, and gets the next connection."""
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(standby_module, "time", clock)
    async with Leader().running() as leader, standing_by(leader.port) as (standby, admin, _):
        used, idle = [await asyncio.open_connection("127.0.0.1", admin) for _ in range(2)]
        async with asyncio.timeout(60):
            assert await say(used, b"x") == await say(idle, b"x") == b"x"
            leaving = asyncio.create_task(standby.leave())
            await until(partial(is_closed, admin))
            now = QUIET_S / 2
            assert await say(used, b"x") == b"x"
            now = QUIET_S
            assert await idle[0].read() == b"", "it waits for nothing"
            while now < LEAVE_S:
                assert await say(used, b"x") == b"x" and not leaving.done()
                now += QUIET_S / 2
            assert await used[0].read() == b"", "whatever is said, as to a dashboard"
            await leaving
        for _, writer in (used, idle):
            writer.close()


async def test_who_was_accepted_is_answered_by_the_standby_that_leaves() -> None:
    """Also who has not said yet which page."""
    async with Leader().running() as leader, standing_by(leader.port) as (standby, _, http):
        reader, writer = await asyncio.open_connection("127.0.0.1", http)
        await settle()
        leaving = asyncio.create_task(standby.leave())
        try:
            async with asyncio.timeout(60):
                await until(partial(is_closed, http))
                assert not leaving.done(), "the process would end"
                writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
                assert (await reader.read()).endswith(b"/readyz")
                await leaving
        finally:
            writer.close()


async def test_who_was_not_accepted_yet_is_answered_by_the_standby_that_leaves() -> None:
    """The system would reset the connection."""
    async with Leader().running() as leader, standing_by(leader.port) as (standby, _, http):
        with socket.create_connection(("127.0.0.1", http)) as caller:
            caller.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(60):
                await standby.leave()
            assert caller.recv(4096).endswith(b"/readyz")


async def test_a_standby_without_descriptors_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts nobody any more then."""

    def accept(_: socket.socket) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    async with Leader().running() as leader, standing_by(leader.port) as (standby, admin, http):
        monkeypatch.setattr(socket.socket, "accept", accept)
        await standby.leave()
        assert await is_closed(admin) and await is_closed(http)


async def say(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], data: bytes) -> bytes:
    reader, writer = connection
    writer.write(data)
    return await reader.read(len(data))


async def test_a_caller_that_leaves_before_it_is_passed_on_leaves_nothing() -> None:
    """Such as a health check of the port. A later caller from the same port is another one, and
    what the first one said must not count as said by this machine."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        arrival = Arrival(host, port, "10.0.0.7")
        arrival.connection_made(asyncio.Transport())
        arrival.data_received(b"x")
        arrival.connection_lost(None)
        await eventually(lambda: bool(heard))
    assert heard == [b""] and not PASSED_ON
