"""The picker dies, freezes or goes, and Envoy is left alone with the requests.

What had not begun by then is served by least_request, in either mode. What was in the picker's
hands in full duplex cannot be: Envoy has no copy of a body that it gave away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from extproc.core.address import Address
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy.codec import PROCESS
from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.fakes import envoy_messages as envoy
from tests.fakes import quick_yaml
from tests.fakes.envoy_stream import EnvoyStream
from tests.fakes.wiretap import Wiretap
from tests.long_run import in_each_mode

pytestmark = [pytest.mark.e2e]


@pytest.fixture
def stack(own_stack: Stack) -> Stack:
    """Each test kills or stops something of it."""
    return own_stack


BLOCKED_S = 9.0
MANY = 30
LARGE = {"padding": "x" * 300_000}


async def flags_of_picker(stack: Stack) -> str:
    """What Envoy thinks of the picker, as its admin page tells it."""
    answer = await stack.client.get(f"http://127.0.0.1:{stack.envoy_admin_port}/clusters")
    _, _, rest = answer.text.partition(f"coxswain::127.0.0.1:{stack.grpc_port}::health_flags::")
    return rest.partition("\n")[0]


async def until_known_lost(stack: Stack) -> str:
    """Wait until Envoy gives the picker up; returns its flags at that moment."""
    flags = ""

    async def is_lost() -> bool:
        nonlocal flags
        flags = await flags_of_picker(stack)
        return flags != "healthy"

    await until(is_lost)
    return flags


async def assert_served_without_picker(stack: Stack) -> None:
    for body in (chat(1), chat(1) | LARGE):
        for _ in range(MANY):
            answer = await stack.client.post(stack.url(CHAT), json=body)
            assert answer.status_code == 200, answer.text
            assert "x-coxswain-endpoint" not in answer.headers


def without_health_checks(config: str) -> str:
    """The same Envoy, which never gives the picker up for a failed health check."""
    tree = quick_yaml.load(config)
    (picker,) = [one for one in tree["static_resources"]["clusters"] if one["name"] == "coxswain"]
    (check,) = picker["health_checks"]
    check["unhealthy_threshold"] = 1_000_000
    return quick_yaml.dump(tree)


def through(tap: Wiretap) -> Callable[[str], str]:
    """What lets an Envoy reach its picker by this relay."""

    def alter(config: str) -> str:
        tree = quick_yaml.load(config)
        (picker,) = [
            one for one in tree["static_resources"]["clusters"] if one["name"] == "coxswain"
        ]
        ((endpoint,),) = [one["lb_endpoints"] for one in picker["load_assignment"]["endpoints"]]
        place = endpoint["endpoint"]["address"]["socket_address"]
        tap.target = Address(place["address"], place["port_value"])
        place["port_value"] = tap.address.port
        return quick_yaml.dump(tree)

    return alter


@in_each_mode
async def test_a_killed_picker_is_given_up_before_any_health_check_failed(
    llama: None, mode: str, tmp_path: Path
) -> None:
    """Or each request until then would give its body to nobody, and be refused."""
    async with Stack.running(
        tmp_path, settings=QUICK, mode=mode, alter=without_health_checks
    ) as stack:
        await stack.kill(stack.picker)
        assert await until_known_lost(stack) == "/failed_outlier_check"
        await assert_served_without_picker(stack)


@in_each_mode
async def test_a_picker_that_comes_back_is_asked_again_and_may_die_again(stack: Stack) -> None:
    """The second death is noticed as fast as the first, a second after the return too; and so is
    an end by SIGTERM, after which nobody is rejected."""
    await stack.kill(stack.picker)
    assert "failed_outlier_check" in await until_known_lost(stack)
    await assert_served_without_picker(stack)
    await stack.restart_picker()
    await stack.until_ready()
    await stack.kill(stack.picker)
    assert "failed_outlier_check" in await until_known_lost(stack)
    await assert_served_without_picker(stack)
    await stack.restart_picker()
    await stack.until_ready()
    assert stack.picker is not None
    stack.terminate(stack.picker)
    assert await stack.picker.wait() == 0
    await until_known_lost(stack)
    await assert_served_without_picker(stack)


async def test_who_waits_in_a_picker_that_dies_is_asked_to_ask_again(
    llama: None, tmp_path: Path
) -> None:
    """Then the next picker freezes, and holds nobody for long: full duplex has no message timeout,
    the pings on the picker's connection are the bound."""
    settings = {**QUICK, "envoy": {"message_timeout_s": 1.0}}
    async with Stack.running(tmp_path, mode="gateway", settings=settings) as stack:
        await lose_while_waiting(stack)


async def lose_while_waiting(stack: Stack) -> None:
    held = await stack.fill()
    waiting = asyncio.create_task(stack.ask())
    await stack.until_waiting(1)
    await stack.kill(stack.picker)
    rejected = await waiting
    assert rejected.status_code == 503
    assert rejected.headers["x-coxswain-reason"] == "picker-lost"
    assert rejected.headers["retry-after"] == "1"
    assert rejected.json()["error"]["code"] == "picker-lost"
    for one in held:
        with pytest.raises(httpx.TransportError):
            await one.read_on()
    await stack.leave_all()
    await stack.restart_picker()
    await stack.until_ready()
    stack.freeze(stack.picker)
    rejected = await stack.ask()
    assert rejected.status_code == 503
    assert rejected.headers["x-coxswain-reason"] == "picker-lost"
    await assert_served_without_picker(stack)


async def test_an_envoy_that_starts_before_its_picker_says_when_to_ask_again(
    tmp_path: Path,
) -> None:
    """In words and with a reason, until it has heard which servers there are; then it serves."""
    settings = {**QUICK, "envoy": {"discovery_timeout_s": 0.5}}
    async with Stack.running(tmp_path, slots=(1,), settings=settings, kind="simulator") as stack:
        assert stack.picker is not None
        await stack.picker.stop()
        early = await stack.start_another_envoy()
        seen: list[httpx.Response] = []

        async def is_answered() -> bool:
            with suppress(httpx.TransportError):
                seen.append(await stack.client.post(f"{early}{CHAT}", json=chat(1)))
            return bool(seen)

        async def is_served() -> bool:
            seen.append(await stack.client.post(f"{early}{CHAT}", json=chat(1)))
            return seen[-1].status_code == 200

        await until(is_answered)
        await stack.restart_picker()
        await until(is_served)
        *before, _ = seen
        assert {each.status_code for each in before} == {503}
        assert {each.headers["retry-after"] for each in before} == {"1"}
        assert before[0].headers["x-coxswain-reason"] == "picker-lost"
        assert before[0].json()["error"]["code"] == "picker-lost"


async def test_a_picker_that_is_waited_for_keeps_its_connection(
    llama: None, tmp_path: Path
) -> None:
    """It stands still for longer than pings and health checks would last by default, and for less
    than the message timeout: requests wait for it, and it decides about them."""
    async with Stack.running(tmp_path, settings=QUICK) as stack:
        stack.freeze(stack.picker)
        asking = asyncio.create_task(stack.ask())
        await asyncio.sleep(BLOCKED_S)
        assert not asking.done()
        await stack.thaw()
        assert "x-coxswain-endpoint" in (await asking).headers
        assert await flags_of_picker(stack) == "healthy"


async def test_a_response_that_flows_on_without_the_picker_keeps_its_slot(tmp_path: Path) -> None:
    """Only the connection is cut: the request of another Envoy waits for the slot."""
    async with (
        Wiretap(Address("127.0.0.1", 0)) as tap,
        Stack.running(
            tmp_path, slots=(1,), settings=QUICK, kind="simulator", alter=through(tap)
        ) as stack,
        grpc.aio.insecure_channel(f"127.0.0.1:{stack.grpc_port}") as channel,
    ):
        held = await stack.hold()
        ask: grpc.aio.StreamStreamMultiCallable[bytes, pb.ProcessingResponse]
        ask = channel.stream_stream(PROCESS, response_deserializer=pb.ProcessingResponse.FromString)
        other = EnvoyStream(ask())
        await other.hold()
        tap.break_connections()

        def drains(status: dict[str, Any]) -> bool:
            (endpoint,) = status["endpoints"].values()
            return (endpoint["slots"]["draining"], status["queue"]["queued"]) == (1, 1)

        await stack.until(drains)
        assert await held.next_chunk()
        await stack.leave_all()
        assert envoy.destination(await other.receive())
