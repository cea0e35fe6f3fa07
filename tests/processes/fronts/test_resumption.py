"""Claims about extproc/processes/fronts/resumption.py; test_takeover.py has links."""

from __future__ import annotations

import marshal

from extproc.core.address import Address
from extproc.core.held_state import LEASED, QUEUED, is_final, is_leased, ticket_of
from extproc.core.scheduler.takeover import HeldLease, Place
from extproc.processes.fronts.resumption import _plain, lease_of, place_of
from tests.fakes.continued import Continued


async def test_what_a_front_is_to_know_of_an_exchange() -> None:
    there = Continued()
    there.begin("undecided")
    there.ask("running")
    there.ask("queued")
    assert there.state("undecided") is None
    running, queued = there.state("running"), there.state("queued")
    assert running is not None and queued is not None
    assert is_leased(running) and not is_leased(queued)
    assert is_final(running) and not is_final(queued)
    assert ticket_of(running) is None
    ticket = there.streams["queued"].ticket
    assert ticket is not None and ticket_of(queued) == ticket.id


def test_states_survive_the_way_to_a_front_and_back() -> None:
    place = Place(17, 12.5)
    lease = HeldLease(
        *(Address("10.0.0.1", 8080), 2, 3, "tiny", 5.25, 0.5),
        (Address("::1", 1), Address("10.0.0.2", 2)),
    )
    states = marshal.loads(marshal.dumps([(QUEUED, *place), (LEASED, *_plain(lease))]))
    assert place_of(states[0]) == place
    assert lease_of(states[1]) == lease
