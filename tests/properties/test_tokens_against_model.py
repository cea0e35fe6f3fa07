"""The rules of shared contexts, against servers that fail all requests when theirs is full."""

from __future__ import annotations

from math import exp
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.fleet.endpoint import ContextSharing
from tests.core.model_context import TOKEN_S, ContextFleet

CONTEXT = 1024


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_bounded_answers_never_overflow(seed: int) -> None:
    """As long as no answer is longer than it may be, whatever the lengths and however late our view
    is, the context never overflows, nobody waits for ever, and the books are right in the end."""
    random = Random(seed)
    fleet = ContextFleet(random, *random.choice([(CONTEXT,), (CONTEXT, 2 * CONTEXT)]))
    for _ in range(40):
        for _ in range(random.choice([0, 1, 5])):
            prompt = random.randint(1, 200)
            most = random.randint(1, 800 - prompt)
            answer = random.randint(1, most)
            leaves = random.randint(1, answer) if random.random() < 0.3 else None
            fleet.submit(prompt, answer, max_tokens=most, leaves_after=leaves)
        for _ in range(random.randint(1, 60)):
            fleet.step()
            assert fleet.dispatcher.faults(fleet.now) == []
    fleet.run_until_idle()
    assert [server.overflows for server in fleet.servers] == [0] * len(fleet.servers)
    for server in fleet.servers:
        pool = fleet.dispatcher.ledger.endpoint_slots(server.address)
        assert pool.tokens is not None and pool.tokens.is_of(pool.leases)


@pytest.mark.parametrize("seed", range(2))
def test_learned_answers_fill_the_context_and_do_not_overflow(seed: int) -> None:
    """Answers of unknown, widely spread lengths, from nothing: none is killed, and once their
    lengths are known several run at once. With slots alone a few of a hundred are killed."""
    killed = {}
    for setting in (ContextSharing.SHARED, ContextSharing.PER_SLOT):
        random = Random(seed)
        fleet = ContextFleet(random, 4 * CONTEXT, setting=setting)
        begun_at, tokens = fleet.now, 0
        for _ in range(300):
            answer = min(1500, int(exp(random.gauss(4.5, 1.0))))
            leaves = random.randint(1, answer) if random.random() < 0.3 else None
            fleet.submit(random.randint(100, 1200), answer, leaves_after=leaves)
            tokens += leaves or answer
        fleet.run_until_idle()
        killed[setting] = fleet.killed
        if setting is ContextSharing.SHARED:
            assert fleet.now - begun_at < 0.75 * tokens * TOKEN_S
    assert killed[ContextSharing.SHARED] == 0
    assert killed[ContextSharing.PER_SLOT] > 3


def test_a_large_request_does_not_starve_behind_small_ones() -> None:
    """Small requests keep coming to a server that has room for each of them, but not beside the
    large one: it is served when those that ran before it have ended."""
    fleet = ContextFleet(Random(1), CONTEXT)
    fleet.show_prompts()
    for _ in range(3):
        fleet.submit(50, 100, max_tokens=100)
    large = fleet.submit(600, 300, max_tokens=300)
    assert any(ticket.request.id == large for ticket in fleet.waiting.values())
    for _ in range(150):
        fleet.step()
        if fleet.requests < 60:
            fleet.submit(50, 100, max_tokens=100)
    assert not any(ticket.request.id == large for ticket in fleet.waiting.values())
    fleet.run_until_idle()
    assert fleet.killed == 0


def test_a_request_that_waits_for_tokens_holds_up_no_other_server() -> None:
    """One that needs a large part of a context waits; what comes later goes to the other server."""
    fleet = ContextFleet(Random(1), CONTEXT, CONTEXT)
    fleet.show_prompts()
    for _ in range(2):
        fleet.submit(300, 400, max_tokens=400)
    large = fleet.submit(300, 600, max_tokens=600)
    small = fleet.submit(20, 20, max_tokens=20)
    waiting = {ticket.request.id for ticket in fleet.waiting.values()}
    assert waiting == {large} and small not in waiting


def test_requests_of_others_take_room_too() -> None:
    """A third of the traffic does not come through the picker, of the same kind: what it is seen to
    hold, and has held lately, is left to it."""
    random = Random(5)
    fleet = ContextFleet(random, 4 * CONTEXT)
    for step in range(12_000):
        if step % 100 == 0 and fleet.requests < 100:
            fleet.submit(random.randint(50, 500), random.randint(10, 200), max_tokens=200)
        if step % 300 == 0:
            fleet.foreign(fleet.servers[0], random.randint(50, 500), random.randint(10, 200))
        fleet.step()
    fleet.run_until_idle()
    assert fleet.killed == 0 and fleet.finished == 100


def test_a_split_context_changes_nothing() -> None:
    """With `per_slot` every decision is the one that slots alone make. By itself the picker takes
    four slots for sharers of one context until they hold more."""
    for setting, running in ((ContextSharing.PER_SLOT, 4), (ContextSharing.AUTO, 1)):
        fleet = ContextFleet(Random(1), CONTEXT, setting=setting)
        for _ in range(4):
            fleet.submit(500, 500)
        assert len(fleet.running) == running
        pool = fleet.dispatcher.ledger.endpoint_slots(fleet.servers[0].address)
        assert (pool.tokens is None) is (setting is ContextSharing.PER_SLOT)
