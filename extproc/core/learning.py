"""What the course of each request and each look teach about speeds and caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.blocks import BLOCK_TOKENS
from extproc.core.request import Kind

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.endpoint import Endpoint
    from extproc.core.lease import Lease
    from extproc.core.observation import Observation, SlotReading
    from extproc.core.running import Run
    from extproc.core.state import State

DEFAULT_CONTEXT_TOKENS = 4096


def expect(state: State, run: Run, address: Address, busy_slots: int, now: float) -> None:
    """Note what is expected of a request that was just picked."""
    request = run.request
    if request.prompt_tokens is None and not request.prompt_blocks:
        return
    cost = state.scorer.cost(request, address, busy_slots, now, is_hopeful=False)
    run.cached_tokens = cost.cached_tokens
    run.expected_first_s = cost.first_token_s
    memory = state.prefixes.memory(address)
    if memory is not None and request.prompt_blocks:
        depth = memory.depth(request.prompt_blocks)
        run.remembered = memory.segments(request.prompt_blocks, depth)


def learn_answer(state: State, lease: Lease, run: Run, now: float, *, is_stream: bool) -> None:
    """The answer began: the prompt was read, and so long it took."""
    request, address = run.request, lease.address
    if request.kind is not Kind.GENERATION:
        return
    if is_stream and request.prompt_tokens is not None:
        fresh = max(0.0, request.prompt_tokens - run.cached_tokens)
        state.timing.watch(address).answered(fresh, now - lease.opened_at)
    if request.prompt_blocks:
        endpoint = state.fleet.get(address)
        if endpoint is not None:
            slots = state.ledger.account(address).slots
            context = endpoint.context_tokens or DEFAULT_CONTEXT_TOKENS
            state.prefixes.learn(address, request.prompt_blocks, slots * context / BLOCK_TOKENS)
    if request.session_id is not None:
        state.sessions.served(request.session_id, address, request.prompt_tokens)


def learn_look(state: State, endpoint: Endpoint, observation: Observation) -> None:
    """What the busy slots show: the pace of tokens, and what was really cached."""
    readings = observation.slot_readings
    address = endpoint.address
    state.timing.watch(address).decoded(readings, len(readings), observation.answered_at)
    account = state.ledger.account(address)
    if account.foreign_slots or len(readings) != len(account.leases):
        return
    # All of it is ours: tasks are numbered in the order in which the server began them.
    leases = sorted(account.leases.values(), key=lambda lease: (lease.opened_at, lease.id))
    for lease, reading in zip(leases, sorted(readings, key=_task_id), strict=True):
        if lease.weight_slots == 1 and lease.opened_at < observation.began_at:
            run = state.running.get(lease)
            if run is not None:
                _learn_cache(state, address, run, reading)


def _learn_cache(state: State, address: Address, run: Run, reading: SlotReading) -> None:
    prompt_tokens = run.request.prompt_tokens
    if not run.remembered or not reading.prompt_tokens or prompt_tokens is None:
        return
    if reading.cached_tokens is None:
        return
    memory = state.prefixes.memory(address)
    if memory is not None:
        found_share = reading.cached_tokens / reading.prompt_tokens  # its tokens are not ours
        memory.correct(run.remembered, found_share * prompt_tokens / BLOCK_TOKENS)
    run.remembered = ()  # once for each request


def _task_id(reading: SlotReading) -> int:
    return reading.task_id
