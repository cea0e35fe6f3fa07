"""One question over real HTTP: the answer, or a `Failure` that says what was wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from extproc.runners.client import (
    MAX_BODY_BYTES,
    Answer,
    Failure,
    FailureKind,
    OwnFaultError,
    RunnerClient,
)
from extproc.runners.target import EndpointTarget
from tests.fakes.authority import Authority
from tests.fakes.listener import Listener
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.no_descriptors import no_descriptors
from tests.fakes.patience import PATIENT

SHORT = replace(PATIENT, read_s=0.05, slots_read_s=0.1)


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlamaServer]:
    async with FakeLlamaServer() as server:
        yield server


@pytest.fixture
async def client(fake: FakeLlamaServer) -> AsyncIterator[RunnerClient]:
    client = RunnerClient(EndpointTarget(address=fake.address), PATIENT, time.monotonic)
    yield client
    await client.aclose()


async def answered(client: RunnerClient, path: str) -> Answer:
    answer = await client.ask(path)
    assert isinstance(answer, Answer), answer
    return answer


async def failed(client: RunnerClient, path: str) -> Failure:
    failure = await client.ask(path)
    assert isinstance(failure, Failure)
    return failure


async def test_one_connection_serves_many_questions(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    answers = [await answered(client, "/slots") for _ in range(5)]
    assert [answer.is_first_on_connection for answer in answers] == [True] + [False] * 4
    assert fake.connections == 1


async def test_the_times_enclose_the_question(fake: FakeLlamaServer, client: RunnerClient) -> None:
    gate = asyncio.Event()
    fake.replies["/slots"] = Reply(body=b"[]", gate=gate)
    before = time.monotonic()
    asking = asyncio.create_task(answered(client, "/slots"))
    await fake.was_asked("/slots")
    held = time.monotonic()
    gate.set()
    answer = await asking
    assert before <= answer.began_at <= held <= answer.answered_at <= time.monotonic()


async def test_the_key_and_the_name_are_sent_and_not_logged(
    fake: FakeLlamaServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fake.api_key = "sesame"
    target = EndpointTarget(address=fake.address, api_key="sesame", host_name="gpu-1")
    client = RunnerClient(target, PATIENT, time.monotonic)
    assert (await answered(client, "/slots")).status == 200
    await client.aclose()
    assert fake.asked[0].headers["host"] == "gpu-1"
    assert "sesame" not in caplog.text


async def test_the_path_prefix_comes_first(fake: FakeLlamaServer) -> None:
    target = EndpointTarget(address=fake.address, path_prefix="/llama")
    client = RunnerClient(target, PATIENT, time.monotonic)
    await answered(client, "/slots?model=a")
    await client.aclose()
    assert fake.asked[0].path == "/llama/slots"
    assert fake.asked[0].query == {"model": ["a"]}


async def test_a_connection_the_server_closed_is_replaced_unnoticed(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    fake.closes_after = 2
    answers = [await answered(client, "/slots") for _ in range(6)]
    assert [answer.is_first_on_connection for answer in answers] == [True, False] * 3


async def test_a_server_that_is_gone_is_unreachable(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    await answered(client, "/slots")
    await fake.stop()
    failure = await failed(client, "/slots")
    assert failure.kind is FailureKind.UNREACHABLE
    assert failure.is_machine_on, "the connection was refused"


async def test_descriptors_that_we_lack_are_no_fault_of_the_server(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    """Neither a question nor an order: the server has not heard of it."""
    with no_descriptors():
        with pytest.raises(OwnFaultError, match="too many open files"):
            await client.ask("/slots")
        with pytest.raises(OwnFaultError):
            await client.post("/models/load", b"{}")
    assert fake.connections == 0
    await answered(client, "/slots")


async def test_a_stall_times_out(fake: FakeLlamaServer) -> None:
    client = RunnerClient(EndpointTarget(address=fake.address), SHORT, time.monotonic)
    never = asyncio.Event()
    for path in ("/health", "/slots"):
        fake.replies[path] = Reply(gate=never)
        failure = await failed(client, path)
        assert failure.kind is FailureKind.TIMED_OUT
        assert failure.began_at < failure.answered_at
        assert not failure.is_machine_on, "it may have been switched off since the last answer"
    await client.aclose()


async def test_slots_may_take_longer_than_anything_else(fake: FakeLlamaServer) -> None:
    """They wait for a decode step; a /health that is as slow is a server that is not well."""
    timeouts = replace(PATIENT, read_s=0.05)
    client = RunnerClient(EndpointTarget(address=fake.address), timeouts, time.monotonic)
    gate = asyncio.Event()
    for path in ("/slots", "/health"):
        fake.replies[path] = Reply(body=b"[]", gate=gate)
    slots = asyncio.create_task(answered(client, "/slots"))
    await fake.was_asked("/slots")
    assert (await failed(client, "/health")).kind is FailureKind.TIMED_OUT
    gate.set()
    assert (await slots).body == b"[]"
    await client.aclose()


async def test_a_stalled_question_does_not_hold_up_another(
    fake: FakeLlamaServer, client: RunnerClient
) -> None:
    gate = asyncio.Event()
    fake.replies["/slots"] = Reply(body=b"[]", gate=gate)
    slots = asyncio.create_task(client.ask("/slots"))
    await fake.was_asked("/slots")
    assert (await answered(client, "/health")).status == 200
    assert not slots.done()
    gate.set()
    await slots


async def test_redirects_are_not_followed(fake: FakeLlamaServer, client: RunnerClient) -> None:
    fake.replies["/slots"] = Reply(status=302, headers={"Location": "/health"})
    assert (await answered(client, "/slots")).status == 302
    assert fake.paths() == ["/slots"]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(body=b"x" * 100, cut_after=90), FailureKind.BROKEN),
        (Reply(cut_after=0), FailureKind.BROKEN),
        (Reply(cut_after=5), FailureKind.BROKEN),
        (Reply(headers={"Content-Length": "-5"}), FailureKind.BROKEN),
        (Reply(headers={"X\x01": "y"}), FailureKind.BROKEN),
        (Reply(body=b"x" * (MAX_BODY_BYTES + 1)), FailureKind.UNUSABLE),
        (Reply(body=b"x", headers={"Content-Encoding": "gzip"}), FailureKind.UNUSABLE),
    ],
)
async def test_what_cannot_be_an_answer_is_a_failure_that_quotes_nothing(
    fake: FakeLlamaServer, client: RunnerClient, reply: Reply, kind: FailureKind
) -> None:
    fake.replies["/slots"] = reply
    failure = await failed(client, "/slots")
    assert failure.kind is kind
    assert "xx" not in failure.message
    del fake.replies["/slots"]
    assert (await answered(client, "/slots")).status == 200


async def test_no_http_at_all_is_a_failure() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")

    listener = Listener(babble)
    address = await listener.start()
    client = RunnerClient(EndpointTarget(address=address), PATIENT, time.monotonic)
    assert (await failed(client, "/slots")).kind is FailureKind.BROKEN
    tls = RunnerClient(EndpointTarget(address=address, is_tls=True), PATIENT, time.monotonic)
    assert (await failed(tls, "/slots")).kind is FailureKind.UNUSABLE
    await client.aclose()
    await tls.aclose()
    await listener.close()


async def test_an_abandoned_question_leaves_no_connection(fake: FakeLlamaServer) -> None:
    client = RunnerClient(EndpointTarget(address=fake.address), PATIENT, time.monotonic)
    fake.replies["/slots"] = Reply(gate=asyncio.Event())
    asking = asyncio.create_task(client.ask("/slots"))
    await fake.was_asked("/slots")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await client.aclose()


async def test_an_abandoned_handshake_leaves_no_connection() -> None:
    """With a server that takes connections and says nothing."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        begun.set()
        with suppress(ConnectionError):
            await reader.read()
        ended.set()

    listener = Listener(listen)
    target = EndpointTarget(address=await listener.start(), is_tls=True)
    client = RunnerClient(target, PATIENT, time.monotonic)
    asking = asyncio.create_task(client.ask("/slots"))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(20):
        await ended.wait()
    await client.aclose()
    await listener.close()


async def test_a_tls_error_after_the_handshake_is_a_failure(tmp_path: Path) -> None:
    """With TLS 1.3 a client learns only then that its certificate is missing, for instance."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        os.write(writer.get_extra_info("socket").fileno(), b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        await reader.read()

    listener = Listener(listen)
    address = await listener.start(tls=context)
    target = EndpointTarget(address=address, is_tls=True, ca_file=str(authority.ca))
    client = RunnerClient(target, PATIENT, time.monotonic)
    try:
        failure = await failed(client, "/slots")
        assert failure.kind is FailureKind.BROKEN
        assert failure.message == "GET /slots was cut off (SSLError)"
    finally:
        await client.aclose()
        await listener.close()


async def test_a_timeout_while_this_process_was_blocked_is_no_answer(
    fake: FakeLlamaServer,
) -> None:
    """The question is repeated until the time passed at the server."""
    is_blocked = True
    client = RunnerClient(
        EndpointTarget(address=fake.address),
        SHORT,
        time.monotonic,
        lambda _: 1.0 if is_blocked else 0.0,
    )
    fake.replies["/slots"] = Reply(body=b"[]", gate=asyncio.Event())
    asking = asyncio.create_task(client.ask("/slots"))
    await fake.was_asked("/slots", 3)
    is_blocked = False
    failure = await asking
    assert isinstance(failure, Failure) and failure.kind is FailureKind.TIMED_OUT
    await client.aclose()


async def test_a_refused_connection_is_an_answer_whoever_was_blocked() -> None:
    async with FakeLlamaServer() as gone:
        address = gone.address
    client = RunnerClient(EndpointTarget(address=address), PATIENT, time.monotonic, lambda _: 1.0)
    failure = await client.ask("/slots")
    assert isinstance(failure, Failure) and failure.kind is FailureKind.UNREACHABLE
    await client.aclose()
