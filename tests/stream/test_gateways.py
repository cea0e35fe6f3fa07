"""Claims about gateways that are no Envoy, over real loopback gRPC, with messages as theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping

import pytest

from extproc import header_names
from extproc.core.exchange_record import Outcome
from extproc.core.slots.ledger import HANDOVER_S
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import Rig, eventually, rig
from tests.fakes.gateways import (
    JSON,
    Agentgateway,
    RefusedError,
    ask_as_nginx,
    nginx_messages,
    process,
)

BODY = json.dumps({"messages": [{"role": "user", "content": "row"}], "max_tokens": 4}).encode()
FIRST = "10.0.0.1:8000"
IMPATIENT = {**JSON, "x-coxswain-queue-timeout-ms": "0"}


async def nginx(
    picker: Rig,
    body: bytes = BODY,
    headers: Mapping[str, str] = JSON,
    *,
    is_in_title_case: bool = False,
) -> str | None:
    """One request of NGINX Gateway Fabric."""
    messages = nginx_messages(body, headers, is_in_title_case=is_in_title_case)
    return await ask_as_nginx(process(picker.channel), messages)


# NGINX Gateway Fabric


@pytest.mark.parametrize("is_in_title_case", [False, True])
async def test_nginx_gets_one_address(is_in_title_case: bool) -> None:
    """In the answer about the headers, and never a list: it would be no host for its proxy_pass.
    What the headers ask for is heeded, however they are written."""
    async with rig(1, 1, 1) as picker:
        found = await nginx(picker, is_in_title_case=is_in_title_case)
        assert found in [str(address) for address in picker.fleet.addresses]
        await picker.finished()
        assert picker.records[0].outcome is Outcome.SERVED
    async with rig(1) as picker:
        picker.fleet.pick()
        with pytest.raises(RefusedError, match="queue-timeout") as rejected:
            await nginx(picker, headers=IMPATIENT, is_in_title_case=is_in_title_case)
        assert rejected.value.status == 504


async def test_a_slot_of_nginx_is_taken_until_its_server_is_seen_free() -> None:
    """Its stream ends before the request reaches the server: a scrape at that moment frees nothing,
    and a busy slot is not counted twice."""
    async with rig(1) as picker:
        address = picker.fleet.addresses[0]
        assert await nginx(picker) == FIRST
        await picker.finished()
        picker.fleet.now += HANDOVER_S / 2
        picker.fleet.scrape(address, busy=0)
        assert picker.leased == 1, "it is on its way"
        picker.fleet.now += HANDOVER_S
        picker.fleet.scrape(address, busy=1)
        assert (picker.leased, picker.fleet.account(address).foreign_slots) == (1, 0)
        waiting = await picker.waiting()
        picker.fleet.scrape(address, busy=0)
        assert envoy.destination(await waiting.receive()) == [FIRST]
        assert picker.leased == 1


async def test_nginx_is_queued() -> None:
    """That it has closed its half is no leaving."""
    async with rig(1) as picker:
        lease = picker.fleet.pick()
        asking = asyncio.ensure_future(nginx(picker))
        await eventually(lambda: picker.in_queue == 1)
        picker.fleet.finish(lease)
        assert await asking == FIRST


async def test_nginx_leaves_the_queue() -> None:
    """The shim resets its stream when nginx has gone."""
    async with rig(1) as picker:
        picker.fleet.pick()
        stream = process(picker.channel)
        asking = asyncio.ensure_future(ask_as_nginx(stream, nginx_messages(BODY)))
        await eventually(lambda: picker.in_queue == 1)
        stream.cancel()
        await picker.finished()
        assert (picker.records[0].outcome, picker.in_queue) == (Outcome.WITHDRAWN, 0)
        await asyncio.wait([asking])


async def test_nginx_without_a_body() -> None:
    """Later shims send GET, too: any endpoint will do, and no slot is taken."""
    async with rig(1) as picker:
        picker.fleet.pick()
        assert await nginx(picker, b"") == FIRST
        await picker.finished()
        assert (picker.records[0].outcome, picker.leased) == (Outcome.PASSED, 1)


@pytest.mark.parametrize("body", [b"", b'{"prompt": "half a '])
async def test_a_body_that_will_not_come_is_not_waited_for(body: bytes) -> None:
    """Its end was not told, and the half is closed: the headers are answered by what came."""
    async with rig(1) as picker:
        headers, whole = nginx_messages(b"x")
        whole.request_body.body = body
        whole.request_body.end_of_stream = False
        messages = iter([headers, whole] if body else [headers])
        assert await ask_as_nginx(process(picker.channel), messages) == FIRST
        assert picker.leased == 1


async def test_a_rejection_reaches_nginx() -> None:
    """Its status and body become the client's."""
    async with rig(1, queue_max_requests=0) as picker:
        picker.fleet.pick()
        with pytest.raises(RefusedError, match="queue-full") as rejected:
            await nginx(picker)
        assert rejected.value.status == 429
        await picker.finished()


async def test_nginx_gets_an_error_when_there_is_nobody() -> None:
    """Also about what takes no slot: it has no fallback of its own."""
    async with rig() as picker:
        with pytest.raises(RefusedError, match="no-endpoint") as rejected:
            await nginx(picker, b"")
        assert rejected.value.status == 503


# agentgateway


async def pieces(*bodies: bytes) -> AsyncIterator[bytes]:
    for body in bodies:
        yield body


@pytest.mark.parametrize("tells_config", [True, False])
async def test_agentgateway(tells_config: bool) -> None:
    """The body comes back whole, the answer flows through, and the lease goes to who served."""
    async with rig(1, 1, fallbacks=0) as picker:
        gateway = Agentgateway(picker.channel, tells_config, piece_bytes=10)
        picked = await gateway.pick(envoy.COMPLETION, JSON, BODY)
        assert gateway.sent == BODY
        (other,) = {str(address) for address in picker.fleet.addresses} - {picked}
        assert await gateway.answer(other, 200, pieces(b"one ", b"two")) == b"one two"
        await picker.finished()
        (record,) = picker.records
        assert (record.outcome, str(record.endpoint), record.status) == (
            Outcome.SERVED,
            other,
            200,
        )
        assert picker.is_clean()


async def test_agentgateway_takes_a_list_for_no_address() -> None:
    """Why docs/envoy.md says `picker.fallbacks: 0`; without `protocol_config` none is told it."""
    async with rig(2, 1) as picker:
        with pytest.raises(ValueError, match=r"10\.0\.0\.1:800.,10"):
            await Agentgateway(picker.channel).pick(envoy.COMPLETION, JSON, BODY)
        assert await Agentgateway(picker.channel, False).pick(envoy.COMPLETION, JSON, BODY)


@pytest.mark.parametrize("tells_config", [True, False])
async def test_agentgateway_asks_about_what_takes_no_slot(tells_config: bool) -> None:
    """GET has no body to wait for."""
    async with rig(1, fallbacks=0) as picker:
        gateway = Agentgateway(picker.channel, tells_config)
        assert await gateway.pick("/props", {}, b"") == FIRST
        assert await gateway.answer(FIRST, 200, pieces(b"{}")) == b"{}"
        assert picker.leased == 0


async def test_who_leaves_agentgateway_frees_its_place() -> None:
    """It resets nothing but closes its half: noticed when the request's turn has come, and its
    slot goes on as soon as it is seen free."""
    async with rig(1, fallbacks=0) as picker:
        lease = picker.fleet.pick()
        stream = process(picker.channel)
        await stream.write(
            Agentgateway(picker.channel)._headers(envoy.COMPLETION, JSON, has_body=True)
        )
        await stream.write(envoy.body(BODY))
        await eventually(lambda: picker.in_queue == 1)
        last = await picker.waiting()
        await stream.done_writing()
        picker.fleet.finish(lease)
        await picker.finished()
        picker.fleet.now += 1.0
        picker.fleet.scrape(picker.fleet.addresses[0], busy=0)
        assert envoy.destination(await last.receive()) == [FIRST]


# Envoys, and all


async def test_an_envoy_that_closes_its_half_over_a_body_has_lost_its_client() -> None:
    """Its request is not sent to any server."""
    for is_duplex in (True, False):
        async with rig(1) as picker:
            stream = picker.stream()
            await stream.send(envoy.with_body(envoy.request_headers(), is_duplex=is_duplex))
            await eventually(lambda: len(picker.registry) == 1)
            await stream.half_close()
            await picker.finished()
            assert picker.records[0].outcome is Outcome.WITHDRAWN
            assert picker.is_clean()


@pytest.mark.parametrize("header", ["x-gateway-model-name-rewrite", "x-llm-d-model-name-rewrite"])
async def test_a_models_rewriting_is_neither_forwarded_nor_misread(header: str) -> None:
    """llm-d's picker would rename the model; this one routes by the model that the server reads."""
    headers = {**JSON, header: "another"}
    for tells_config in (True, False):
        async with rig(1, fallbacks=0) as picker:
            gateway = Agentgateway(picker.channel, tells_config)
            body = json.dumps({"model": "mine", "prompt": "row"}).encode()
            await gateway.pick("/v1/completions", headers, body)
            assert list(gateway.mutation.remove_headers) == [header]
            retries = [header_names.MAX_RETRIES] if tells_config else []
            assert [*envoy.set_headers(gateway.mutation)] == [header_names.DESTINATION, *retries]
            assert gateway.sent == body
            (stream,) = picker.registry
            assert stream.snapshot(picker.fleet.now).model == "mine"
