"""Claims about extproc/processes/connection_balancer.py, with real processes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from extproc.processes.connection_balancer import ConnectionBalancer
from extproc.processes.member import Role
from tests.fakes.envoy_stream import eventually
from tests.fakes.started_processes import some_started


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


async def test_each_connection_goes_to_the_front_with_the_fewest(listener: socket.socket) -> None:
    async with some_started() as processes:
        first, second, unready = await processes.start(Role.FRONT, 3)
        first.is_ready = second.is_ready = True
        first.connections = 2
        balancer = ConnectionBalancer([listener], processes.table.ready_fronts)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(4)]
        balancer.accept(True)
        await eventually(lambda: first.connections + second.connections == 6)
        balancer.close()
        assert (first.connections, second.connections) == (3, 3)
        await eventually(lambda: len(processes.orders(second.name, "serve")) == 3)
        await eventually(lambda: len(processes.orders(first.name, "serve")) == 1)
        assert [each["sockets"] for each in processes.orders(second.name, "serve")] == [1, 1, 1]
        assert processes.orders(unready.name, "serve") == []
        for client in clients:
            client.close()


async def test_a_front_that_stands_still_gets_a_connection_if_there_is_no_other(
    listener: socket.socket,
) -> None:
    async with some_started() as processes:
        still, busy = await processes.start(Role.FRONT, 2)
        still.is_ready = busy.is_ready = True
        still.is_silent, busy.connections = True, 9
        balancer = ConnectionBalancer([listener], processes.table.ready_fronts)
        balancer.accept(True)
        with socket.create_connection(listener.getsockname()):
            await eventually(lambda: busy.connections == 10)
        busy.is_leaving = True
        with socket.create_connection(listener.getsockname()):
            await eventually(lambda: still.connections == 1)
        balancer.close()


async def test_what_a_lost_front_has_not_taken_another_one_gets(listener: socket.socket) -> None:
    """Also if it cannot even be asked. What it has taken is lost with it."""
    async with some_started() as processes:
        lost, other = await processes.start(Role.FRONT, 2)
        lost.is_ready = other.is_ready = True
        other.connections = 9
        balancer = ConnectionBalancer([listener], processes.table.ready_fronts)
        balancer.accept(True)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        await eventually(lambda: len(processes.orders(lost.name, "serve")) == 2)
        balancer.served(processes.orders(lost.name, "serve")[0]["number"])
        lost.end_at_once()
        await eventually(lambda: processes.ended == [lost.name])
        balancer.ended(lost)
        await eventually(lambda: len(processes.orders(other.name, "serve")) == 1)
        balancer.close()
        for client in clients:
            client.close()


async def test_a_front_that_cannot_be_asked_is_passed_over(listener: socket.socket) -> None:
    async with some_started() as processes:
        lost, other = await processes.start(Role.FRONT, 2)
        other.connections = 9
        lost.end_at_once()
        await eventually(lambda: processes.ended == [lost.name])
        balancer = ConnectionBalancer([listener], lambda: [lost, other])
        balancer.accept(True)
        with socket.create_connection(listener.getsockname()):
            await eventually(lambda: len(processes.orders(other.name, "serve")) == 1)
        balancer.close()
        balancer.served(processes.orders(other.name, "serve")[0]["number"])  # it says so late
        assert (lost.connections, other.connections) == (0, 10)


async def test_connections_wait_in_the_kernel_until_there_is_a_front(
    listener: socket.socket,
) -> None:
    async with some_started() as processes:
        balancer = ConnectionBalancer([listener], processes.table.ready_fronts)
        with socket.create_connection(listener.getsockname()) as client:
            balancer.accept(False)  # it accepts nothing yet: no error
            await asyncio.sleep(0)
            (front,) = await processes.start(Role.FRONT, 1)
            front.is_ready = True
            balancer.accept(True)
            await processes.order_to(front.name, "serve")
            assert client.fileno() >= 0
        balancer.close()


async def test_a_connection_that_no_front_can_serve_is_closed(listener: socket.socket) -> None:
    balancer = ConnectionBalancer([listener], list)
    balancer.accept(True)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    assert await reader.read() == b""
    writer.close()
    balancer.close()


async def test_a_front_learns_from_which_pools_port_a_connection_is() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as main,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as pools,
    ):
        ports = {pools.getsockname()[1]: "batch"}
        for each in (main, pools):
            each.setblocking(False)
        async with some_started() as processes:
            (front,) = await processes.start(Role.FRONT, 1)
            front.is_ready = True
            balancer = ConnectionBalancer([main, pools], processes.table.ready_fronts, ports)
            balancer.accept(True)
            with socket.create_connection(main.getsockname()):
                assert (await processes.order_to(front.name, "serve"))["pool"] == ""
                with socket.create_connection(pools.getsockname()[:2]):
                    await eventually(lambda: len(processes.orders(front.name, "serve")) == 2)
            assert processes.orders(front.name, "serve")[1]["pool"] == "batch"
            balancer.close()
