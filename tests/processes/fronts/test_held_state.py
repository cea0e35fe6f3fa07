"""Claims about extproc/processes/fronts/held_state.py."""

from __future__ import annotations

import marshal

from extproc.core.address import Address
from extproc.core.held_state import LEASED, QUEUED
from extproc.core.scheduler.takeover import HeldLease, Place
from extproc.processes.fronts.held_state import _plain, lease_of, place_of


def test_states_survive_the_way_to_a_front_and_back() -> None:
    place = Place(17, 12.5)
    lease = HeldLease(
        *(Address("10.0.0.1", 8080), 2, 3, "tiny", 5.25, 0.5),
        (Address("::1", 1), Address("10.0.0.2", 2)),
    )
    states = marshal.loads(marshal.dumps([(QUEUED, *place), (LEASED, *_plain(lease))]))
    assert place_of(states[0]) == place
    assert lease_of(states[1]) == lease
