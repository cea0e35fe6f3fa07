"""Claims about extproc/stream/servicer.py, over real loopback gRPC, with streams as Envoy's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from unittest.mock import ANY

import grpc
import pytest

from extproc.core.exchange_record import Outcome
from extproc.core.fleet.health import Health
from extproc.core.rejection import Reason
from extproc.core.slots.ledger import HANDOVER_S
from extproc.pb import external_processor_pb2 as pb
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import LIMIT_S, EnvoyStream, Rig, eventually, rig
from tests.fakes.log import logged

SHOWN = logging.WARNING


# The usual way


async def test_a_whole_exchange() -> None:
    """Headers, trailers and the end: the lease lives as long as the stream."""
    async with rig(1) as picker:
        stream = await picker.running(x_request_id="abc")
        assert picker.leased == 1 and len(picker.registry) == 1
        answer = await stream.ask(envoy.response_headers(served="10.0.0.1:8000"))
        assert answer.WhichOneof("response") == "response_headers"
        await stream.ask(envoy.part("response_trailers"))
        await stream.half_close()
        assert await stream.status() is grpc.StatusCode.OK
        await picker.finished()
        assert picker.is_clean()
        assert (picker.records[0].outcome, picker.records[0].request_id) == (Outcome.SERVED, "abc")


async def test_a_body_in_chunks() -> None:
    """Each chunk has its answer, the empty last one and a doubled end of stream too."""
    async with rig(1) as picker:
        stream = await picker.running()
        for chunk in (envoy.body(b"{", end_of_stream=False), envoy.body(), envoy.body()):
            assert (await stream.ask(chunk)).WhichOneof("response") == "request_body"
        await stream.ask(envoy.response_headers())
        await stream.half_close()
        await picker.finished()
        assert picker.is_clean()


async def test_answers_are_distinguished() -> None:
    """A hundred streams at once on one connection: each gets its own, none waits for another."""
    async with rig(100) as picker:
        streams = await asyncio.gather(*(picker.running() for _ in range(100)))
        assert picker.leased == 100
        for stream in streams:
            await stream.half_close()
        await picker.finished(100)
        assert len({record.exchange_id for record in picker.records}) == 100


# Waiting


async def test_a_held_request_is_served_when_a_slot_is_free() -> None:
    """Patience is asked for beyond the deadline; then the destination comes."""
    async with rig(1, queue_timeout_s=30.0) as picker:
        first = await picker.running()
        second = picker.stream()
        hold = await second.hold()
        assert hold.override_message_timeout.ToMilliseconds() > 30_000
        await first.ask(envoy.response_headers())
        await first.half_close()
        assert envoy.destination(await second.receive()) == ["10.0.0.1:8000"]
        await second.ask(envoy.response_headers())
        await second.half_close()
        await picker.finished(2)
        assert picker.is_clean()


async def test_the_queue_keeps_its_order() -> None:
    """Twelve wait; whichever stream ends, the first of them is next."""
    async with rig(1) as picker:
        running = await picker.running()
        waiting = [await picker.waiting() for _ in range(12)]
        for stream in waiting:
            await running.ask(envoy.response_headers())
            await running.half_close()
            assert envoy.destination(await stream.receive())
            running = stream


async def test_a_client_that_leaves_the_queue() -> None:
    """Gone from it as soon as Envoy resets the stream; its slot goes to the next."""
    async with rig(1) as picker:
        first, leaver, last = await picker.running(), await picker.waiting(), await picker.waiting()
        leaver.reset()
        await picker.finished()
        assert (picker.records[0].outcome, picker.in_queue) == (Outcome.WITHDRAWN, 1)
        await first.ask(envoy.response_headers())
        await first.half_close()
        assert envoy.destination(await last.receive())
        assert picker.leased == 1


async def test_a_half_close_in_the_queue_is_no_leaving() -> None:
    """Nothing more will be said, but the answer is still waited for."""
    async with rig(1) as picker:
        lease, waiting = picker.fleet.pick(), await picker.waiting()
        await waiting.half_close()
        picker.fleet.finish(lease)
        assert envoy.destination(await waiting.receive())
        await picker.finished()
        picker.fleet.now += 1.0
        picker.fleet.scrape(picker.fleet.addresses[0], busy=0)
        assert picker.is_clean()


async def leave(stream: EnvoyStream, way: str) -> None:
    if way == "reset":
        stream.reset()
    else:
        await stream.half_close()


@pytest.mark.parametrize("way", ["reset", "half_close"])
async def test_a_leaving_crosses_a_settlement_on_the_wire(way: str) -> None:
    """Whichever is noticed first: the slot comes to the next, at once or once it is seen free."""
    async with rig(1) as picker:
        lease = picker.fleet.pick()
        leaver, last = await picker.waiting(), await picker.waiting()
        await leave(leaver, way)
        picker.fleet.finish(lease)
        assert picker.leased == 1
        await picker.finished()
        picker.fleet.now += 1.0
        picker.fleet.scrape(picker.fleet.addresses[0], busy=0)
        assert envoy.destination(await last.receive())
        assert (picker.leased, picker.in_queue) == (1, 0)


@pytest.mark.parametrize("is_settled_first", [True, False])
async def test_a_leaving_and_a_settlement_in_one_turn(is_settled_first: bool) -> None:
    """The destination was never sent: the slot goes to the next at once, without draining."""
    async with rig(1) as picker:
        lease = picker.fleet.pick()
        hands = [picker.by_hand(), picker.by_hand()]
        for hand in hands:
            hand.say(envoy.request_headers())
        assert all(hand.sent for hand in hands)
        deeds: list[Callable[[], object]] = [lambda: picker.fleet.finish(lease), hands[0].reset]
        for deed in deeds if is_settled_first else reversed(deeds):
            deed()
        assert picker.records[0].outcome is Outcome.WITHDRAWN
        assert len(hands[0].sent) == 1, "only the hold"
        await eventually(lambda: len(hands[1].sent) == 2)
        assert envoy.destination(hands[1].sent[1])
        assert (picker.leased, picker.in_queue) == (1, 0)
        hands[1].reset()


async def test_no_task_belongs_to_a_stream() -> None:
    """Neither while it waits nor when its client has left."""
    async with rig() as picker:
        before = asyncio.all_tasks()
        hand = picker.by_hand()
        hand.say(envoy.request_headers())
        assert hand.sent
        assert asyncio.all_tasks() == before
        hand.reset()
        assert asyncio.all_tasks() == before
        assert picker.is_clean()


async def test_deadlines_come_in_their_own_order() -> None:
    """504 to the impatient first, and nothing to the others."""
    async with rig(1) as picker:
        await picker.running()
        patient = await picker.waiting(x_coxswain_queue_timeout_ms="20000")
        impatient = await picker.waiting(x_coxswain_queue_timeout_ms="5000")
        picker.fleet.pass_time(5.0)
        assert envoy.rejection(await impatient.receive()) == (504, "queue-timeout")
        assert picker.in_queue == 1
        picker.fleet.pass_time(15.0)
        assert envoy.rejection(await patient.receive()) == (504, "queue-timeout")


async def test_no_line_at_all() -> None:
    """`queue.max_requests` of 0: 429 at once."""
    async with rig(1, queue_max_requests=0) as picker:
        await picker.running()
        assert envoy.rejection(await picker.stream().ask(envoy.request_headers())) == (
            429,
            "queue-full",
        )


@pytest.mark.parametrize("headers", [{}, {"x_coxswain_queue_timeout_ms": "0"}])
async def test_no_patience(headers: dict[str, str]) -> None:
    """`queue.timeout_s` of 0, or a client's own: 504 at once, without a hold."""
    async with rig(1, queue_timeout_s=60.0 if headers else 0.0) as picker:
        await picker.running()
        answer = await picker.stream().ask(envoy.request_headers(**headers))
        assert envoy.rejection(answer) == (504, "queue-timeout")


async def test_scale_from_zero() -> None:
    """Without any endpoint a request waits, and the first that appears serves it."""
    async with rig() as picker:
        stream = await picker.waiting()
        picker.fleet.add(1)
        assert envoy.destination(await stream.receive()) == ["10.0.0.1:8000"]


async def test_what_comes_while_a_request_waits_is_answered_after_it() -> None:
    """A message that Envoy sends early is kept, not lost, and the wait goes on."""
    async with rig(1) as picker:
        first, second = await picker.running(), await picker.waiting()
        await second.send(envoy.body(b"{}"))
        await first.ask(envoy.response_headers())
        await first.half_close()
        assert envoy.destination(await second.receive())
        assert (await second.receive()).WhichOneof("response") == "request_body"


async def waits_with_more_to_come(picker: Rig) -> EnvoyStream:
    """In full duplex: enough of its body came for the decision, and the rest is on its way."""
    stream = picker.stream()
    await stream.send(envoy.with_body(envoy.request_headers(), is_duplex=True))
    hold = await stream.ask(envoy.body(b"x" * 70_000, end_of_stream=False))
    assert hold.HasField("override_message_timeout")
    return stream


async def test_a_body_goes_on_while_its_request_waits() -> None:
    """Its pieces go out behind the destination, in their order."""
    async with rig(1) as picker:
        first, second = await picker.running(), await waits_with_more_to_come(picker)
        await second.send(envoy.body(b"y" * 50_000))
        await first.ask(envoy.response_headers())
        await first.half_close()
        assert envoy.destination(await second.receive())
        pieces = [(await second.receive()).request_body for _ in range(3)]
        streamed = [one.response.body_mutation.streamed_response.body for one in pieces]
        assert b"".join(streamed) == b"x" * 70_000 + b"y" * 50_000


async def test_a_client_that_leaves_the_queue_in_the_middle_of_its_body() -> None:
    """Gone at once, as any other, whatever lies there unread."""
    async with rig(1) as picker:
        await picker.running()
        leaver = await waits_with_more_to_come(picker)
        await leaver.send(envoy.body(b"y" * 50_000, end_of_stream=False))
        leaver.reset()
        await picker.finished()
        assert (picker.records[0].outcome, picker.in_queue) == (Outcome.WITHDRAWN, 0)


async def test_a_long_body_stays_with_its_client_while_its_request_waits() -> None:
    """What was read for the decision is kept here; the rest is read when it was served."""
    async with rig(1) as picker:
        lease = picker.fleet.pick()
        hand = picker.by_hand()
        hand.say(envoy.with_body(envoy.request_headers(), is_duplex=True))
        for _ in range(20):
            hand.say(envoy.body(b"x" * 60_000, end_of_stream=False))
        hand.say(envoy.body(b"x" * 60_000))
        assert hand.sent
        assert not hand.is_read(), "all of it was taken in"
        picker.fleet.finish(lease)
        await eventually(hand.is_read)
        assert len(hand.sent) == 1 + 1 + 21
        hand.reset()


# The end, anywhere


MESSAGES = [
    envoy.request_headers(),
    envoy.body(),
    envoy.response_headers(),
    envoy.part("response_body"),
    envoy.part("response_trailers"),
]


@pytest.mark.parametrize("way", ["reset", "half_close"])
@pytest.mark.parametrize("many", range(len(MESSAGES) + 1))
async def test_an_end_after_any_message(many: int, way: str) -> None:
    """Whatever was said before: the stream is told once, and its slot is free or drains."""
    async with rig(1) as picker:
        stream = picker.stream()
        for message in MESSAGES[:many]:
            await stream.ask(message)
        if not many:  # a stream without any message may never reach the server
            await eventually(lambda: len(picker.registry) == 1)
        await leave(stream, way)
        await picker.finished()
        picker.fleet.pass_time(10.0)
        assert picker.is_clean() and len(picker.records) == 1


async def test_a_client_that_left_while_its_server_works() -> None:
    """The slot drains: the next waits until it is seen free."""
    async with rig(1) as picker:
        first, second = await picker.running(), await picker.waiting()
        first.reset()
        await picker.finished()
        assert (picker.records[0].outcome, picker.leased) == (Outcome.BROKEN, 1)
        picker.fleet.now += 1.0
        picker.fleet.scrape(picker.fleet.addresses[0], busy=0)
        assert envoy.destination(await second.receive())


async def test_a_storm_of_clients_that_leave(caplog: pytest.LogCaptureFixture) -> None:
    """Three hundred streams end at random moments; no lease, no ticket and no error is left."""
    random = Random(7)
    caplog.set_level(SHOWN)

    async def client(picker: Rig) -> None:
        stream = picker.stream()
        messages = iter(MESSAGES)
        try:
            for _ in range(random.randrange(1, 6)):
                await stream.send(next(messages))
                if random.random() < 0.6:
                    answer = await stream.receive()
                    if answer.HasField("immediate_response"):
                        break  # Envoy says no more then
                for _ in range(random.randrange(4)):
                    await asyncio.sleep(0)
        except (EOFError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        finally:
            await leave(stream, random.choice(["reset", "half_close"]))

    async with rig(2, 3, queue_max_requests=40) as picker:
        for _ in range(6):
            tasks = [asyncio.create_task(client(picker)) for _ in range(50)]
            while not all(task.done() for task in tasks):
                picker.fleet.now += 0.1
                for address in picker.fleet.addresses:
                    picker.fleet.scrape(address)
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            await asyncio.sleep(0)

        def is_over() -> bool:
            picker.fleet.now += 0.1
            for address in picker.fleet.addresses:
                picker.fleet.scrape(address)
            return picker.is_clean()

        await eventually(is_over)
    assert [record.getMessage() for record in logged(caplog)] == []


# Bad input


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (envoy.unknown_kind(), "unknown type of message"),
        (pb.ProcessingRequest(), "unknown type of message"),
        (envoy.request_headers(), "arrived twice"),
        (b"\xff\xff\xff", "not a valid message"),
    ],
)
async def test_a_message_without_sense(
    message: pb.ProcessingRequest | bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream is ended with a clear status and one log line; its slot drains, from when the
    request must have reached its server."""
    caplog.set_level(SHOWN)
    async with rig(2) as picker:
        stream, other = await picker.running(), await picker.running()
        await stream.send(message)
        assert await stream.status() is grpc.StatusCode.INVALID_ARGUMENT
        await picker.finished()
        assert picker.leased == 2
        picker.fleet.pass_time(10.0 + HANDOVER_S)
        assert picker.leased == 1, "the other one's"
        assert (await other.ask(envoy.response_headers())).HasField("response_headers")
    assert [told in record.getMessage() for record in logged(caplog)] == [True]


async def test_garbage_while_a_request_waits(caplog: pytest.LogCaptureFixture) -> None:
    """It is read when the wait is over, and nothing is left of the request."""
    caplog.set_level(SHOWN)
    async with rig(1) as picker:
        lease, stream = picker.fleet.pick(), await picker.waiting()
        await stream.send(b"\xff\xff\xff")
        picker.fleet.finish(lease)
        assert envoy.destination(await stream.receive())
        assert await stream.status() is grpc.StatusCode.INVALID_ARGUMENT
        await picker.finished()
        picker.fleet.now += 1.0
        picker.fleet.scrape(picker.fleet.addresses[0], busy=0)
        assert picker.is_clean()
    assert [record.getMessage() for record in logged(caplog)] == [ANY]


async def test_observability_mode(caplog: pytest.LogCaptureFixture) -> None:
    """Envoy would not wait for an answer: the operator is told, no slot is taken."""
    caplog.set_level(SHOWN)
    async with rig(1) as picker:
        message = envoy.request_headers()
        message.observability_mode = True
        stream = picker.stream()
        await stream.send(message)
        assert await stream.status() is grpc.StatusCode.INVALID_ARGUMENT
        await picker.finished()
        assert picker.is_clean()
    assert ["observability mode" in r.getMessage() for r in logged(caplog)] == [True]


@pytest.mark.parametrize(
    ("message", "is_served"),
    [
        (envoy.request_headers(None), False),
        (envoy.request_headers(""), False),
        (envoy.request_headers(x_coxswain_queue_timeout_ms="soon"), False),
        (envoy.request_headers(x_coxswain_queue_timeout_ms=b"\xff"), False),
        (envoy.request_headers(content_length="9" * 40), True),
        (envoy.request_headers(content_length="-1"), True),
        (envoy.request_headers(x_request_id=b"\xff\xfe\x00"), True),
        (envoy.request_headers(x_request_id="x" * 1_000_000), True),
        (envoy.request_headers("/v1/completions?" + "q" * 1_000_000), True),
        (envoy.request_headers("/%ff%00/../v1//completions"), True),
    ],
)
async def test_odd_requests(
    message: pb.ProcessingRequest, is_served: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A sane answer or a clear 400, never a stack trace."""
    caplog.set_level(SHOWN)
    async with rig(1) as picker:
        stream = picker.stream()
        answer = await stream.ask(message)
        if is_served:
            assert envoy.destination(answer)
        else:
            assert envoy.rejection(answer) == (400, "bad-request")
        assert picker.leased == is_served
        await stream.half_close()
        await picker.finished()
        picker.fleet.pass_time(10.0)
        assert picker.is_clean()
    assert logged(caplog) == []


async def test_a_stream_that_breaks_does_not_stop_another(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a bug of ours in one exchange leaves the others and the line alone."""
    async with rig(1) as picker:
        first, second, third = (
            await picker.running(),
            await picker.waiting(),
            await picker.waiting(),
        )

        def tell(_: object) -> None:
            monkeypatch.undo()
            raise RuntimeError("a bug in telemetry")

        monkeypatch.setattr(picker.processor, "_record", tell)
        await first.ask(envoy.response_headers())
        await first.half_close()
        assert await first.status() is grpc.StatusCode.OK
        assert envoy.destination(await second.receive())
        await second.ask(envoy.response_headers())
        await second.half_close()
        assert envoy.destination(await third.receive())
        assert (picker.leased, picker.in_queue) == (1, 0)


# Operators


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_cancelling(is_waiting: bool) -> None:
    """The client gets a rejection, waiting or running; its place goes to the next."""
    async with rig(1) as picker:
        first, second = await picker.running(), await picker.waiting(x_request_id="second")
        stream = second if is_waiting else first
        ids = {exchange.snapshot(0.0).request_id: exchange for exchange in picker.registry}
        ids["second" if is_waiting else ""].cancel(picker.fleet.now)
        assert envoy.rejection(await stream.receive()) == (503, "cancelled")
        await stream.half_close()
        await picker.finished()
        assert picker.records[0].reason is Reason.CANCELLED


async def test_cancelling_several_times() -> None:
    """It is refused once."""
    async with rig(1) as picker:
        stream = picker.stream()
        await stream.send(envoy.request_headers())
        await eventually(lambda: picker.leased == 1)
        (exchange,) = picker.registry
        for _ in range(5):
            exchange.cancel(picker.fleet.now)
        rejected = await stream.receive()
        if rejected.WhichOneof("response") == "request_headers":
            rejected = await stream.receive()
        assert envoy.rejection(rejected) == (503, "cancelled")


# Shutting down


async def test_shutting_down() -> None:
    """Who waits is rejected, who comes is left to Envoy, who runs may end in peace."""
    async with rig(1) as picker:
        running, waiting = await picker.running(), await picker.waiting()
        picker.processor.close()
        picker.fleet.dispatcher.close(picker.fleet.now)
        assert envoy.rejection(await waiting.receive()) == (503, "shutting-down")
        arrival = picker.stream()
        assert await arrival.status() is grpc.StatusCode.UNAVAILABLE
        await waiting.half_close()
        await picker.finished()
        assert not picker.processor.idle.is_set()
        await running.ask(envoy.response_headers())
        await running.half_close()
        async with asyncio.timeout(LIMIT_S):
            await picker.processor.idle.wait()
        assert picker.is_clean()


# What it learns


async def test_who_served_is_learnt() -> None:
    """A fallback's answer marks the first as down and moves the lease."""
    async with rig(1, 1) as picker:
        stream = picker.stream()
        first, second = envoy.destination(await stream.ask(envoy.request_headers()))
        await stream.ask(envoy.response_headers(served=second, attempts=2))
        health = {str(e.address): e.health for e in picker.fleet.dispatcher.fleet}
        assert (health[first], health[second]) == (Health.DOWN, Health.READY)
        await stream.half_close()
        await picker.finished()
        assert picker.is_clean()
        assert str(picker.records[0].endpoint) == second
