"""What operators do while requests run: over real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import httpx
import pytest
import pytest_asyncio

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.conftest import QUICK
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, Server, Stack, until

pytestmark = shares("llama-servers discovery")


@pytest_asyncio.fixture(loop_scope="session")
async def stack(llama: None, stacks: StackPool) -> AsyncIterator[Stack]:
    async with stacks.lend(settings=QUICK) as lent:
        yield lent


@pytest_asyncio.fixture(loop_scope="session")
async def admin(stack: Stack) -> AsyncIterator[AdminStub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel:
        yield AdminStub(channel)


class Load:
    """Four clients that ask one thing after another until told to stop."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._is_over = False
        self.answers: list[httpx.Response] = []
        self._tasks = [asyncio.create_task(self._ask()) for _ in range(4)]

    async def _ask(self) -> None:
        while not self._is_over:
            self.answers.append(await self._stack.ask(max_tokens=8))

    async def more(self, many: int = 20) -> Sequence[httpx.Response]:
        """The next answers, `many` of them; those under way before do not count."""
        start = len(self.answers) + len(self._tasks)
        async with asyncio.timeout(60):
            while len(self.answers) < start + many:  # noqa: ASYNC110  # many tasks append
                await asyncio.sleep(0.02)
        return self.answers[start:]

    async def stop(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)


def places(answers: Sequence[httpx.Response]) -> set[str]:
    return {answer.headers["x-coxswain-endpoint"] for answer in answers}


async def until_idle(admin: AdminStub, address: str) -> None:
    """The requests that were there have ended."""
    async with asyncio.timeout(30):
        while True:
            listed = await admin.ListEndpoints(pb.ListEndpointsRequest())
            if not any(each.leases for each in listed.endpoints if each.address == address):
                return
            await asyncio.sleep(0.02)


async def most_busy(server: Server, load: Load) -> int:
    """The highest number of slots at work there, until it has served twenty requests and one was
    seen: on a busy machine few looks fall into a request."""
    start, most = len(load.answers), 0
    async with asyncio.timeout(60):
        while not most or sum("third" in places([one]) for one in load.answers[start:]) < 20:
            most = max(most, await server.busy())
    return most


async def test_the_fleet_changes_under_load(llama: None, tmp_path: Path) -> None:
    """Added, drained, activated, disabled, removed, added with fewer slots: not one request fails,
    and each goes where it may."""
    async with (
        Stack.running(tmp_path, slots=(2, 2), settings=QUICK) as stack,
        grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel,
    ):
        await change_under_load(stack, AdminStub(channel))


async def change_under_load(stack: Stack, admin: AdminStub) -> None:
    first, second = (server.address for server in stack.servers)
    load = Load(stack)
    assert places(await load.more()) <= {first, second}
    server = await stack.add_server(2)
    third = server.address
    await admin.AddEndpoint(pb.AddEndpointRequest(address=third, name="third"))
    while "third" not in places(await load.more()):
        pass
    drained = [message async for message in admin.Drain(pb.DrainRequest(address=first))]
    assert drained[-1].state == pb.DrainResponse.STATE_DRAINED
    assert first not in places(await load.more())
    await admin.Activate(pb.ActivateRequest(address=first))
    await admin.Disable(pb.DisableRequest(address=second))
    await until_idle(admin, second)
    assert second not in places(await load.more())
    await admin.RemoveEndpoint(pb.RemoveEndpointRequest(address="third"))
    await until_idle(admin, third)
    assert places(await load.more()) == {first}
    await admin.AddEndpoint(pb.AddEndpointRequest(address=third, name="third", slots=1))
    assert await most_busy(server, load) == 1, "of the two that it has"
    await admin.RemoveEndpoint(pb.RemoveEndpointRequest(address="third"))
    await until_idle(admin, third)
    await load.stop()
    assert {answer.status_code for answer in load.answers} == {200}
    listed = await admin.ListEndpoints(pb.ListEndpointsRequest())
    assert {endpoint.address for endpoint in listed.endpoints} == {first, second}


async def test_a_running_answer_is_cut_off(stack: Stack, admin: AdminStub) -> None:
    """The client sees the break, and the server lets go of the slot."""
    held = await stack.hold(headers={"x-request-id": "endless"})
    listed = await admin.ListRequests(pb.ListRequestsRequest())
    (request,) = listed.requests
    assert request.state == pb.REQUEST_STATE_RESPONDING
    assert (request.request_id, request.endpoint) == ("endless", held.endpoint)
    await admin.CancelRequest(pb.CancelRequestRequest(id=request.exchange_id))
    with pytest.raises(httpx.TransportError):
        await held.read_on()
    await stack.until_busy([0, 0])
    assert not (await admin.ListRequests(pb.ListRequestsRequest())).requests


@pytest.mark.parametrize("read_body", ["auto"])
async def test_a_request_is_rejected_while_its_body_comes(
    one_simulator: Stack,
) -> None:
    """At once, in the middle of it; nothing of it is left."""
    stack = one_simulator
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel,
    ):
        admin = AdminStub(channel)
        before = (await stack.status())["outcomes"].get("cancelled", 0)

        async def is_read() -> bool:
            found = (await admin.ListRequests(pb.ListRequestsRequest())).requests
            return [one.state for one in found] == [pb.REQUEST_STATE_READING]

        for body_bytes in (1_000, 10**9):  # asked for whole, and in parts
            reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
            lines = [f"POST {CHAT} HTTP/1.1", "host: test", "content-type: application/json"]
            lines += ["x-request-id: slow", f"content-length: {body_bytes}", "", '{"messages":']
            writer.write("\r\n".join(lines).encode())
            await until(is_read)
            await admin.CancelRequest(pb.CancelRequestRequest(id="slow"))
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503")
            assert b"x-coxswain-reason: cancelled" in head.lower()
            writer.close()
            await stack.until(lambda status: status["exchanges"] == 0)
            assert not (await admin.ListRequests(pb.ListRequestsRequest())).requests
        assert (await stack.status())["outcomes"]["cancelled"] == before + 2
        assert (await stack.ask()).status_code == 200


async def test_a_waiting_request_is_rejected(stack: Stack, admin: AdminStub) -> None:
    """It reads 503 `cancelled`, and reaches no server."""
    held = await stack.fill()
    waiting = asyncio.create_task(stack.ask(headers={"x-request-id": "patient"}))
    await stack.until_waiting(1)
    await admin.CancelRequest(pb.CancelRequestRequest(id="patient"))
    answer = await waiting
    assert answer.status_code == 503
    assert answer.headers["x-coxswain-reason"] == "cancelled"
    for one in held:
        await one.leave()
