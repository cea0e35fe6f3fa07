"""What was learned of the fleet, as plain values with which another process decides alike.

    of each endpoint    speeds, the prompts in its prefix cache, the sessions that it served
    of the fleet        the lengths of answers: their mean, and how they are distributed by model

Values are tuples of numbers and texts: about 20 bytes for each block of a prefix cache, which are
bounded (see `prefix_cache`), and for each session.
"""

from typing import Any, Final

from extproc.core.address import Address
from extproc.core.scheduler.state import State

Learned = tuple[Any, ...]
NO_CACHE: Final[Learned] = ()


def version_of(state: State, address: Address) -> tuple[float, ...]:
    """Changes when requests have ended there or its cache is known better. O(1)."""
    memory = state.prefix_caches.memory(address)
    samples = state.latency.samples_of(address)
    return (samples, *((0, 0.0) if memory is None else (memory.read, memory.capacity)))


def learned_of(state: State, address: Address | None) -> Learned:
    """What is known of an endpoint, O(its blocks and sessions); with None of all together."""
    if address is None:
        return (*state.latency.answers(), state.answer_lengths.as_plain())
    memory = state.prefix_caches.memory(address)
    cache: Learned = NO_CACHE
    if memory is not None:
        blocks = memory.blocks
        cache = (memory.capacity, memory.read, tuple(blocks), tuple(blocks.values()))
    return (
        state.latency.endpoint(address).as_plain(),
        cache,
        tuple(state.sessions.at(address)),
    )


def relearn(state: State, address: Address | None, learned: Learned) -> None:
    """Know of an endpoint, or with None of all together, what another process knew; what this one
    has learned of an endpoint is kept if it has learned anything. Raises `ValueError` or
    `TypeError` for what is not from `learned_of`."""
    if address is None:
        total, weight, lengths = learned
        state.latency.restore_answers((total, weight))
        state.answer_lengths.restore(lengths)
        return
    speeds, cache, sessions = learned
    if not state.latency.samples_of(address):
        state.latency.restore(address, speeds)
    if cache and state.prefix_caches.memory(address) is None:
        state.prefix_caches.restore(address, *cache)
    for session, tokens in sessions:
        if state.sessions.last_endpoint(session) is None:
            state.sessions.served(session, address, int(tokens))
