"""Claims about extproc/processes/fronts/network_frames.py."""

from __future__ import annotations

from random import Random

import pytest
from google.protobuf.message import DecodeError

from extproc.core.held_state import LEASED, OVER, PASSING, QUEUED
from extproc.processes.fronts import frames
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.network_frames import MAX_BATCH_BYTES, network_codec

METADATA = (("x-a", "text"), ("x-b-bin", b"\x00\xff"))
LEASE = (LEASED, "10.0.0.1:8080", 2, 1, "tiny", 7.5, 0.25, ("10.0.0.2:8080",))
NO_MODEL = (LEASED, "[::1]:8080", 1, 1, None, 7.5, 0.0, ())


def held(state: tuple[object, ...] | None) -> tuple[object, ...]:
    kept = [(0, b"head"), (3, b"\x22part")]
    return (7, "/path", METADATA, "exchange", 8.25, state, 3, 4, True, kept, "batch")


EVERY: list[Frame] = [
    (frames.HELLO, "b/front-1", 1, (("10.0.0.1:8080", "active", {"slots": 2}),), []),
    (frames.HELLO, "b/front-1", 1, (), [held(None), held((QUEUED, 5 << 32, 8.5)), held(LEASE)]),
    (frames.OPEN, 7, "/path", METADATA, "exchange", 9.0, "batch"),
    (frames.MESSAGE, 7, b"\x00message"),
    (frames.CLOSED, 7),
    (frames.GONE, 0, True),
    (frames.GONE, 0, False),
    (frames.REPLIES, 7, 2, False, None, [b"one", b""]),
    (frames.REPLIES, 7, 2, True, LEASE, []),
    (frames.REPLIES, 7, 2, True, NO_MODEL, []),
    (frames.REPLIES, 7, 2, True, (PASSING,), []),
    (frames.REPLIES, 7, 2, True, (OVER,), []),
    (frames.FINISH, 7, 14, "text"),
    (frames.FLEET, (("10.0.0.1:8080", "draining", None),)),
    (frames.OPENED,),
    (frames.ENDED, 7),
    (frames.READ, "exchange", True, 3, False, 10, None, 0, 0.25, None),
    (frames.READ, "exchange", False, 0, True, None, None, None, None, 1.5),
    (frames.TAKEN, "exchange"),
    (frames.PING, 12.5, True),
    (frames.PONG, 12.5),
]


def test_every_message_comes_back_as_it_was_said() -> None:
    """All kinds of `frames` are here, so one that is added later is missed."""
    kinds = {
        value
        for name, value in vars(frames).items()
        if name[0].isupper() and name.isupper() and name != "VERSION"
    }
    assert {frame[0] for frame in EVERY} == kinds
    codec = network_codec(lambda: 10.0)
    assert codec.feed(codec.encode(EVERY)) == [EVERY]


def test_moments_become_those_of_the_reader() -> None:
    """The clocks of two machines have nothing in common."""
    data = network_codec(lambda: 10.0).encode([(frames.OPEN, 1, "/path", (), "id", 9.0, "")])
    [[frame]] = network_codec(lambda: 5000.0).feed(data)
    assert frame[5] == pytest.approx(4999.0)


def test_batches_arrive_whole_however_the_bytes_are_cut() -> None:
    random, codec = Random(2), network_codec(lambda: 10.0)
    batches = [[frame] for frame in EVERY]
    data = b"".join(map(codec.encode, batches))
    found, start = [], 0
    while start < len(data):
        step = random.randint(1, 50)
        found += codec.feed(data[start : start + step])
        start += step
    assert found == batches


@pytest.mark.parametrize(
    "data",
    [
        b"\x03\x00\x00\x00\xff\xff\xff",
        (MAX_BATCH_BYTES + 1).to_bytes(4, "little"),
        b"\x02\x00\x00\x00\x0a\x00",  # a message of no kind
    ],
)
def test_what_makes_no_sense_is_said(data: bytes) -> None:
    with pytest.raises(DecodeError):
        network_codec().feed(data)
