"""What a core says to those that would take over from it: its spare, and members that stand by.

    HASH_SEED  seed, check: of the hashes of prompts
    ENDPOINT   address, what was learned of it
    FLEET      what was learned of all endpoints together
    GONE       address: it left the fleet
    COUNTERS   those of the fleet
    KEYS       the names of clients by the digests of their keys

`COUNTERS` and `KEYS` are for the spare of the same machine only. What was learned of an endpoint
travels as bytes (`Learned` in link.proto), which are read by the one that leads.
"""

import os
from typing import Any, Final

from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.fronts.frames import Codec, Frame

HASH_SEED: Final = 0
ENDPOINT: Final = 1
FLEET: Final = 2
GONE: Final = 3
COUNTERS: Final = 4
KEYS: Final = 5

MAX_BATCH_BYTES: Final = 64 << 20
SEED_VARIABLE: Final = "PYTHONHASHSEED"

Learned = tuple[Any, ...]
"""See `extproc/core/learning/learned.py`."""


def hash_seed() -> tuple[int, int]:
    """The seed of this process, 0 if it has none that others could have, and a check: processes
    with another one have other hashes."""
    text = os.environ.get(SEED_VARIABLE, "")
    return int(text) if text.isdecimal() else 0, hash("coxswain")


def learned_bytes(learned: Learned) -> bytes:
    """What was learned of an endpoint. O(its blocks and sessions)."""
    speeds, cache, sessions = learned
    said = pb.Learned(
        speeds=[pb.Learned.Values(values=values) for values in speeds],
        sessions=[name for name, _ in sessions],
        session_tokens=[tokens for _, tokens in sessions],
    )
    if cache:
        capacity, read, blocks, read_at = cache
        said.prompt_cache.capacity_blocks = capacity
        said.prompt_cache.read_blocks = read
        said.prompt_cache.blocks.extend(blocks)
        said.prompt_cache.read_at.extend(read_at)
    return said.SerializeToString()


def learned_of(data: bytes, *, with_cache: bool) -> Learned:
    """The same again; `with_cache` if the writer's hashes are ours. Raises `DecodeError`."""
    said = pb.Learned.FromString(data)
    cache: tuple[Any, ...] = ()
    if with_cache and said.HasField("prompt_cache"):
        found = said.prompt_cache
        cache = (
            *(found.capacity_blocks, found.read_blocks),
            *(tuple(found.blocks), tuple(found.read_at)),
        )
    return (
        tuple(tuple(each.values) for each in said.speeds),
        cache,
        tuple(zip(said.sessions, said.session_tokens, strict=True)),
    )


def learned_codec() -> Codec:
    """The codec for a member on another machine."""
    return Codec(_write, _read, MAX_BATCH_BYTES)


def _write(batch: list[Frame]) -> bytes:
    return pb.LearnedBatch(frames=map(_written, batch)).SerializeToString()


def _read(message: bytes) -> list[Frame]:
    batch = pb.LearnedBatch.FromString(message)
    return [frame for each in batch.frames if (frame := _plain(each))]


def _written(frame: Frame) -> pb.LearnedFrame:
    match frame:
        case (int(kind), seed, check) if kind == HASH_SEED:
            return pb.LearnedFrame(hash_seed=pb.HashSeed(seed=seed, check=check))
        case (int(kind), address, learned) if kind == ENDPOINT:
            endpoint = pb.LearnedEndpoint(address=address, learned=learned)
            return pb.LearnedFrame(endpoint=endpoint)
        case (int(kind), (*values, lengths, loads)) if kind == FLEET:
            answers = pb.LearnedAnswers(
                values=values,
                lengths=[pb.LearnedLengths(model=name, values=each) for name, each in lengths],
                loads=[pb.LearnedLoads(model=name, values=each) for name, each in loads],
            )
            return pb.LearnedFrame(answers=answers)
        case (int(kind), address) if kind == GONE:
            return pb.LearnedFrame(gone=address)
    raise ValueError(f"this stays on the machine: {frame[0]}")


def _plain(frame: pb.LearnedFrame) -> Frame | None:
    """None for what a later version says."""
    match frame.WhichOneof("kind"):
        case "hash_seed":
            return (HASH_SEED, frame.hash_seed.seed, frame.hash_seed.check)
        case "endpoint":
            return (ENDPOINT, frame.endpoint.address, frame.endpoint.learned)
        case "answers":
            lengths, loads = (
                tuple((each.model, tuple(each.values)) for each in listed)
                for listed in (frame.answers.lengths, frame.answers.loads)
            )
            return (FLEET, (*frame.answers.values, lengths, loads))
        case "gone":
            return (GONE, frame.gone)
    return None
