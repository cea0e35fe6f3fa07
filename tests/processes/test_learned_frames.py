"""Claims about extproc/processes/learned_frames.py."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest
from google.protobuf.message import DecodeError

from extproc.processes.fronts.frames import Frame
from extproc.processes.learned_frames import (
    COUNTERS,
    ENDPOINT,
    FLEET,
    GONE,
    HASH_SEED,
    KEYS,
    SEED_VARIABLE,
    learned_bytes,
    learned_codec,
    learned_of,
)

SPEEDS = ((1.0, 0.5, 2.0), (0.25,), (1e-300, 1e300))
CACHE = (3072.5, 1 << 60, (-(1 << 63), 5, (1 << 63) - 1), (0, 7, 1 << 60))
SESSIONS = (("chat-1", 500.0), ("größe", 0.0))

EVERY: list[Frame] = [
    (HASH_SEED, (1 << 32) - 1, -(1 << 63)),
    (HASH_SEED, 0, 5),
    (ENDPOINT, "[::1]:8080", learned_bytes((SPEEDS, CACHE, SESSIONS))),
    (FLEET, (120.5, 3.0, (("größe", (31.0, 0.25)), ("", (1.0,))), (("größe", (4.5, 1.0)),))),
    (GONE, "10.0.0.1:8080"),
]


@pytest.mark.parametrize("cache", [CACHE, ()])
def test_what_was_learned_comes_back_as_it_was(cache: tuple[object, ...]) -> None:
    learned = (SPEEDS, cache, SESSIONS)
    assert learned_of(learned_bytes(learned), with_cache=True) == learned
    assert learned_of(learned_bytes(learned), with_cache=False) == (SPEEDS, (), SESSIONS)


def test_batches_arrive_whole_however_the_bytes_are_cut() -> None:
    random, codec = Random(2), learned_codec()
    batches = [[frame] for frame in EVERY] + [EVERY]
    data = b"".join(map(codec.encode, batches))
    found, start = [], 0
    while start < len(data):
        step = random.randint(1, 50)
        found += codec.feed(data[start : start + step])
        start += step
    assert found == batches


@pytest.mark.parametrize("frame", [(COUNTERS, ()), (KEYS, {})])
def test_counters_and_keys_stay_on_the_machine(frame: Frame) -> None:
    with pytest.raises(ValueError, match="stays on the machine"):
        learned_codec().encode([frame])


@pytest.mark.parametrize("data", [b"\x03\x00\x00\x00\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_what_makes_no_sense_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        learned_codec().feed(data)


def test_what_a_later_version_says_is_left_out() -> None:
    unknown = b"\x05\x00\x00\x00\x0a\x03\x9a\x06\x00"  # a frame of kind 99
    assert learned_codec().feed(unknown) == [[]]


@pytest.mark.parametrize("own", ["7", "8", "random"])
def test_processes_with_the_same_seed_have_the_same_check(own: str) -> None:
    code = "from extproc.processes.learned_frames import hash_seed; print(*hash_seed())"

    def said(seed: str) -> str:
        environment = {**os.environ, SEED_VARIABLE: seed}
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert (said(own) == said("7")) is (own == "7")
    if own == "random":
        assert said(own).split()[0] == "0"
