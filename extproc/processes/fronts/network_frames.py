"""The messages of `frames` between machines: protobuf, and ages in place of moments.

Clocks of two machines are not compared: a moment leaves as its age, and becomes a moment of the
reader's clock. The time on the way is lost, which is less than scheduling takes.
"""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError

from extproc.core.held_state import LEASED, PASSING, QUEUED
from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.fronts import frames
from extproc.processes.fronts.frames import Codec, Frame

VERSION: Final = 1
"""Of the protocol between machines. A reader ignores fields that it does not know."""
MAX_BATCH_BYTES: Final = 256 << 20
MAX_COUNT: Final = 1 << 53
"""What a server reports is not more than this."""


def network_codec(clock: Callable[[], float] = time.monotonic) -> Codec:
    """The codec between machines; `clock` is in monotonic seconds."""

    def write(batch: list[Frame]) -> bytes:
        now = clock()
        written = [_WRITERS[kind](now, *values) for kind, *values in batch]
        return pb.Batch(frames=written).SerializeToString()

    def read(message: bytes) -> list[Frame]:
        batch = pb.Batch.FromString(message)
        now = clock()
        return [_read(frame, now) for frame in batch.frames]

    return Codec(write, read, MAX_BATCH_BYTES)


def _read(frame: pb.Frame, now: float) -> Frame:
    kind = frame.WhichOneof("kind")
    if kind is None:
        raise DecodeError("a message of an unknown kind")
    read = _READERS[kind]
    return read(getattr(frame, kind), now)


def _write_hello(
    now: float, front: str, version: int, fleet: tuple[Any, ...], calls: list[tuple[Any, ...]]
) -> pb.Frame:
    hello = pb.Hello(
        front=front,
        version=version,
        fleet=_fleet(fleet),
        calls=[_held_call(call, now) for call in calls],
    )
    return pb.Frame(hello=hello)


def _held_call(call: tuple[Any, ...], now: float) -> pb.HeldCall:
    number, path, metadata, exchange_id, began_at, *more = call
    state, heard, received, is_closed, kept, pool = more
    return pb.HeldCall(
        number=number,
        path=path,
        metadata=_headers(metadata),
        exchange_id=exchange_id,
        age_s=now - began_at,
        state=_state(state, now),
        heard=heard,
        received=received,
        is_closed=is_closed,
        kept=[pb.KeptMessage(number=each, message=message) for each, message in kept],
        pool=pool,
    )


def _read_hello(hello: pb.Hello, now: float) -> Frame:
    calls = [
        (
            *(call.number, call.path, _plain_headers(call.metadata), call.exchange_id),
            *(now - call.age_s, _plain_state(call, now), call.heard, call.received),
            *(call.is_closed, [(each.number, each.message) for each in call.kept], call.pool),
        )
        for call in hello.calls
    ]
    return (frames.HELLO, hello.front, hello.version, _plain_fleet(hello.fleet), calls)


def _write_open(
    now: float,
    number: int,
    path: str,
    metadata: tuple[Any, ...],
    exchange_id: str,
    began_at: float,
    pool: str,
) -> pb.Frame:
    opened = pb.Open(
        number=number,
        path=path,
        metadata=_headers(metadata),
        exchange_id=exchange_id,
        age_s=now - began_at,
        pool=pool,
    )
    return pb.Frame(open=opened)


def _read_open(opened: pb.Open, now: float) -> Frame:
    metadata = _plain_headers(opened.metadata)
    began_at = now - opened.age_s
    return (
        *(frames.OPEN, opened.number, opened.path, metadata),
        *(opened.exchange_id, began_at, opened.pool),
    )


def _write_replies(
    now: float,
    number: int,
    heard: int,
    is_paused: bool,
    state: tuple[Any, ...] | None,
    replies: list[bytes],
) -> pb.Frame:
    said = pb.Replies(
        number=number,
        heard=heard,
        is_paused=is_paused,
        state=_state(state, now),
        replies=replies,
    )
    return pb.Frame(replies=said)


def _read_replies(said: pb.Replies, now: float) -> Frame:
    state = _plain_state(said, now)
    return (frames.REPLIES, said.number, said.heard, said.is_paused, state, list(said.replies))


def _write_read(
    _: float,
    exchange_id: str,
    is_whole: bool,
    events: int,
    is_overflow: bool,
    input_tokens: int | None,
    output_tokens: int | None,
    cached_tokens: int | None,
    prompt_s: float | None,
    generated_s: float | None,
) -> pb.Frame:
    counts = (input_tokens, output_tokens, cached_tokens)
    prompt, generated, cached = (
        None if each is None else min(max(each, 0), MAX_COUNT) for each in counts
    )
    read = pb.Read(
        exchange_id=exchange_id,
        is_whole=is_whole,
        events=events,
        is_overflow=is_overflow,
        input_tokens=prompt,
        output_tokens=generated,
        cached_tokens=cached,
        prompt_s=prompt_s,
        generated_s=generated_s,
    )
    return pb.Frame(read=read)


def _read_read(read: pb.Read, _: float) -> Frame:
    return (
        *(frames.READ, read.exchange_id, read.is_whole, read.events, read.is_overflow),
        read.input_tokens if read.HasField("input_tokens") else None,
        read.output_tokens if read.HasField("output_tokens") else None,
        read.cached_tokens if read.HasField("cached_tokens") else None,
        read.prompt_s if read.HasField("prompt_s") else None,
        read.generated_s if read.HasField("generated_s") else None,
    )


def _headers(metadata: Iterable[tuple[str, str | bytes]]) -> list[pb.Header]:
    return [
        pb.Header(name=name, text=value)
        if isinstance(value, str)
        else pb.Header(name=name, binary=value)
        for name, value in metadata
    ]


def _plain_headers(headers: Iterable[pb.Header]) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(
        (each.name, each.binary if each.WhichOneof("value") == "binary" else each.text)
        for each in headers
    )


def _state(state: tuple[Any, ...] | None, now: float) -> pb.State | None:
    if state is None:
        return None
    kind = state[0]
    if kind == QUEUED:
        _, ticket_id, entered_at = state
        return pb.State(queued=pb.Queued(ticket_id=ticket_id, age_s=now - entered_at))
    if kind == LEASED:
        _, address, weight_slots, asked_slots, model, opened_at, waited_s, fallbacks = state
        lease = pb.Leased(
            address=address,
            weight_slots=weight_slots,
            asked_slots=asked_slots,
            model=model,
            age_s=now - opened_at,
            waited_s=waited_s,
            fallbacks=fallbacks,
        )
        return pb.State(leased=lease)
    if kind == PASSING:
        return pb.State(passing=pb.Nothing())
    return pb.State(over=pb.Nothing())


def _plain_state(holder: pb.HeldCall | pb.Replies, now: float) -> tuple[Any, ...] | None:
    if not holder.HasField("state"):
        return None
    kind = holder.state.WhichOneof("kind")
    if kind is None:
        raise DecodeError("a state of an unknown kind")
    if kind == QUEUED:
        queued = holder.state.queued
        return (QUEUED, queued.ticket_id, now - queued.age_s)
    if kind == LEASED:
        lease = holder.state.leased
        model = lease.model if lease.HasField("model") else None
        return (
            *(LEASED, lease.address, lease.weight_slots, lease.asked_slots, model),
            *(now - lease.age_s, lease.waited_s, tuple(lease.fallbacks)),
        )
    return (kind,)


def _fleet(fleet: tuple[Any, ...]) -> pb.Fleet:
    return pb.Fleet(
        endpoints=[
            pb.Fleet.Endpoint(
                address=address, intent=intent, added="" if added is None else json.dumps(added)
            )
            for address, intent, added in fleet
        ]
    )


def _plain_fleet(fleet: pb.Fleet) -> tuple[tuple[Any, ...], ...]:
    try:
        return tuple(
            (each.address, each.intent, json.loads(each.added) if each.added else None)
            for each in fleet.endpoints
        )
    except ValueError:
        raise DecodeError("an added endpoint that is none") from None


_WRITERS: Final[dict[int, Callable[..., pb.Frame]]] = {
    frames.HELLO: _write_hello,
    frames.OPEN: _write_open,
    frames.MESSAGE: lambda _, number, message: pb.Frame(
        message=pb.Message(number=number, message=message)
    ),
    frames.CLOSED: lambda _, number: pb.Frame(closed=number),
    frames.GONE: lambda _, number, was_reset: (
        pb.Frame(gone=number) if was_reset else pb.Frame(lost=number)
    ),
    frames.REPLIES: _write_replies,
    frames.FINISH: lambda _, number, status, text: pb.Frame(
        finish=pb.Finish(number=number, status=status, text=text)
    ),
    frames.ENDED: lambda _, number: pb.Frame(ended=number),
    frames.READ: _write_read,
    frames.TAKEN: lambda _, exchange_id: pb.Frame(taken=exchange_id),
    frames.FLEET: lambda _, fleet: pb.Frame(fleet=_fleet(fleet)),
    frames.OPENED: lambda _: pb.Frame(opened=pb.Opened()),
    frames.PING: lambda _, sent_at, is_deciding: pb.Frame(
        ping=pb.Ping(sent_at=sent_at, is_deciding=is_deciding)
    ),
    frames.PONG: lambda _, sent_at: pb.Frame(pong=sent_at),
}
_READERS: Final[dict[str, Callable[[Any, float], Frame]]] = {
    "hello": _read_hello,
    "open": _read_open,
    "message": lambda said, _: (frames.MESSAGE, said.number, said.message),
    "closed": lambda number, _: (frames.CLOSED, number),
    "gone": lambda number, _: (frames.GONE, number, True),
    "lost": lambda number, _: (frames.GONE, number, False),
    "replies": _read_replies,
    "finish": lambda said, _: (frames.FINISH, said.number, said.status, said.text),
    "ended": lambda number, _: (frames.ENDED, number),
    "read": _read_read,
    "taken": lambda exchange_id, _: (frames.TAKEN, exchange_id),
    "fleet": lambda fleet, _: (frames.FLEET, _plain_fleet(fleet)),
    "opened": lambda _, __: (frames.OPENED,),
    "ping": lambda said, _: (frames.PING, said.sent_at, said.is_deciding),
    "pong": lambda sent_at, _: (frames.PONG, sent_at),
}
