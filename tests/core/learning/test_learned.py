"""Claims about extproc/core/learning/learned.py: who takes over decides as the one before did."""

from __future__ import annotations

import marshal
from random import Random
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.constraints import UNCONSTRAINED
from extproc.core.decision import Picked
from extproc.core.fleet.endpoint import ContextSharing
from extproc.core.prediction.size_features import features_of
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.slots.lease import LeaseEnd
from tests.fakes.numbers import numbers
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet

SPEEDS = (0.2, 1.0, 3.0)
"""How long a server takes for a thousand uncached tokens, in seconds."""


def chat(random: Random, number: int) -> Request:
    """A request of one of twenty chats, of which each has grown to some length."""
    chat_id = random.randrange(20)
    blocks = tuple(1000 * chat_id + each for each in range(random.randrange(1, 40)))
    return Request(
        id=f"r{number}",
        timeout_s=10.0,
        prompt_blocks=blocks,
        prompt_tokens=32 * len(blocks),
        session_id=f"chat-{chat_id}",
    )


def work(fleet: SmallFleet, random: Random, count: int) -> None:
    """Serve requests one after the other, each as fast as its server is."""
    dispatcher = fleet.dispatcher
    for number in range(count):
        request = chat(random, number)
        outcome = dispatcher.submit(request, fleet.now)
        assert isinstance(outcome, Picked)
        lease = outcome.lease
        speed = SPEEDS[fleet.addresses.index(lease.address)]
        fleet.now += 0.05 + speed * (request.prompt_tokens or 0) / 1000
        dispatcher.responded(lease, fleet.now, is_stream=False)
        dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
        fleet.now += random.random()


def costs(dispatcher: Dispatcher, fleet: SmallFleet, request: Request) -> list[dict[str, float]]:
    resolved = dispatcher.resolver.resolve(request)
    assert not isinstance(resolved, str) and resolved.constraints is UNCONSTRAINED  # type: ignore[union-attr]
    return [
        numbers(dispatcher.view.cost_at(resolved, request, each, fleet.now))  # type: ignore[arg-type]
        for each in fleet.addresses
    ]


def taken_over(fleet: SmallFleet) -> SmallFleet:
    """Another process that knows what this one has learned, after a way as bytes."""
    other = SmallFleet(*(4 for _ in fleet.addresses))
    other.now = fleet.now
    for address in (None, *fleet.addresses):
        data = marshal.dumps(fleet.dispatcher.learned(address))
        other.dispatcher.relearn(address, marshal.loads(data))
    return other


@pytest.mark.parametrize("seed", range(5))
def test_costs_and_choices_are_those_of_the_process_before(seed: int) -> None:
    fleet, random = SmallFleet(4, 4, 4), Random(seed)
    work(fleet, random, 300)
    other = taken_over(fleet)
    fresh = SmallFleet(4, 4, 4)
    fresh.now = fleet.now
    differences = 0
    for number in range(50):
        request = chat(random, 1000 + number)
        before = costs(fleet.dispatcher, fleet, request)
        assert costs(other.dispatcher, other, request) == before
        differences += costs(fresh.dispatcher, fresh, request) != before
    assert differences == 50, "without what was learned they are others"
    random, again = Random(seed), Random(seed)
    for number in range(50):
        choices = []
        for each, source in ((fleet, random), (other, again)):
            outcome = each.dispatcher.submit(chat(source, number), each.now)
            assert isinstance(outcome, Picked)
            each.dispatcher.release(outcome.lease, LeaseEnd.SERVED, each.now)
            choices.append(outcome.lease.address)
        assert choices[0] == choices[1]


def test_what_follows_is_learned_alike() -> None:
    """The memories go on as if nothing had happened, also where they forget."""
    fleet = SmallFleet(4, 4, 4)
    work(fleet, Random(1), 100)
    other = taken_over(fleet)
    for each in (fleet, other):
        work(each, Random(2), 200)
    assert [other.dispatcher.learned(a) for a in other.addresses] == [
        fleet.dispatcher.learned(a) for a in fleet.addresses
    ]


def test_the_lengths_of_answers_are_known_after_a_takeover() -> None:
    """Where slots share a context two requests run at once as before, which needs the lengths."""
    together = []
    plain: Any = None
    for is_taken_over in (False, True):
        fleet = SteeredFleet(context=ContextSharing.SHARED)
        fleet.add(4, context_tokens=8192)
        if is_taken_over:
            fleet.dispatcher.relearn(None, marshal.loads(marshal.dumps(plain)))
        asked = {"prompt_tokens": 50, "prompt_chars": 200, "traits": "/v1"}
        together.append(isinstance(fleet.submit(**asked), Picked))
        together.append(isinstance(fleet.submit(**asked), Picked))
        if not is_taken_over:
            lengths = fleet.dispatcher.state.answer_lengths
            features = features_of(Request(id="r", timeout_s=1.0), None, "")
            for _ in range(1000):
                lengths.add(features, 20.0, is_complete=True)
            plain = fleet.dispatcher.learned(None)
    assert together == [True, False, True, True]


def test_what_was_learned_meanwhile_is_kept() -> None:
    fleet = SmallFleet(4, 4, 4)
    work(fleet, Random(1), 50)
    other = SmallFleet(4, 4, 4)
    work(other, Random(3), 50)
    busy = [a for a in other.addresses if other.dispatcher.learned_version(a)[0]]
    before = {a: other.dispatcher.learned(a)[:2] for a in busy}
    for address in fleet.addresses:
        other.dispatcher.relearn(address, fleet.dispatcher.learned(address))
    assert busy
    assert {a: other.dispatcher.learned(a)[:2] for a in busy} == before


def test_a_version_changes_with_what_is_learned_and_not_otherwise() -> None:
    fleet = SmallFleet(4)
    dispatcher, address = fleet.dispatcher, fleet.addresses[0]
    before = dispatcher.learned_version(address)
    fleet.scrape(address, slots=4)
    assert dispatcher.learned_version(address) == before
    work(fleet, Random(1), 1)
    assert dispatcher.learned_version(address) != before


@pytest.mark.parametrize("learned", [(), (1, 2), ((), (), ()), (((),) * 5, (), ()), "abc"])
def test_what_is_not_learned_is_an_error(learned: object) -> None:
    fleet = SmallFleet(4)
    with pytest.raises((ValueError, TypeError, IndexError)):
        fleet.dispatcher.relearn(fleet.addresses[0], learned)  # type: ignore[arg-type]
    assert not fleet.dispatcher.faults(fleet.now)
    assert isinstance(fleet.submit(), Picked)


def test_an_endpoint_of_which_nothing_is_known_is_known_as_such() -> None:
    fleet = SmallFleet(1)
    other = taken_over(fleet)
    assert other.dispatcher.learned(other.addresses[0]) == fleet.dispatcher.learned(
        Address("10.0.0.1", 8000)
    )
