"""Claims about extproc/core/conversations.py."""

from __future__ import annotations

from itertools import count

from extproc.core.address import Address
from extproc.core.conversations import KEPT_S, SWEEP_S, Conversations
from extproc.core.slots.lease import Lease

A, B = Address("10.0.0.1", 8080), Address("10.0.0.2", 8080)
NUMBERS = count(1)


def lease_of(address: Address = A, opened_at: float = 0.0) -> Lease:
    return Lease(next(NUMBERS), address, 1, opened_at)


def test_a_conversation_belongs_to_the_client_that_began_it() -> None:
    table = Conversations()
    lease = lease_of()
    assert table.begin("c::tiny", "web", lease)
    assert lease.outlives_client
    assert table.server_of("c::tiny", "web") == A
    assert table.server_of("c::tiny", "other") is None
    assert table.server_of("c", "web") is None and table.server_of("", "web") is None
    assert table.found(["c"], "other") == {}


def test_another_client_cannot_take_an_id_or_one_that_begins_like_it() -> None:
    """Its server would end the answer of the first, or show that there is one."""
    table = Conversations()
    assert table.begin("c::tiny", "web", lease_of())
    for id_ in ("c::tiny", "c", "c::other", "c::"):
        theirs = lease_of(B)
        assert not table.begin(id_, "other", theirs)
        assert not theirs.outlives_client
    assert table.begin("c::other", "web", lease_of(B))
    assert table.begin("cc", "other", lease_of(B))
    assert table.server_of("c::tiny", "web") == A


def test_the_same_id_again_is_where_it_was_begun_last() -> None:
    table = Conversations()
    assert table.begin("c", "web", lease_of(A)) and table.begin("c", "web", lease_of(B))
    assert (table.server_of("c", "web"), len(table)) == (B, 1)


def test_a_conversation_is_found_by_its_id_and_with_models_behind_it() -> None:
    table = Conversations()
    leases = {id_: lease_of() for id_ in ("c", "c::tiny", "c::tiny::x", "cc", "d")}
    for id_, lease in leases.items():
        table.begin(id_, "web", lease)
    assert table.found(["c", "c", "none"], "web").keys() == {"c", "c::tiny", "c::tiny::x"}
    assert table.found(["c::tiny"], "web").keys() == {"c::tiny", "c::tiny::x"}
    assert table.found(["d", "cc"], "web") == {"d": leases["d"], "cc": leases["cc"]}


def test_it_is_where_its_lease_has_moved() -> None:
    table = Conversations()
    lease = lease_of(A)
    table.begin("c", "web", lease)
    lease.address = B
    assert table.server_of("c", "web") == B


def test_it_is_forgotten_some_time_after_its_end_and_the_id_is_free() -> None:
    table = Conversations()
    ended, running = lease_of(), lease_of()
    table.begin("ended", "web", ended)
    table.begin("running", "web", running)
    ended.close(100.0)
    table.begin("x", "other", lease_of(opened_at=100.0 + KEPT_S))
    assert table.server_of("ended", "web") == A
    table.begin("y", "other", lease_of(opened_at=100.0 + KEPT_S + SWEEP_S))
    assert table.server_of("ended", "web") is None
    assert table.server_of("running", "web") == A
    assert table.begin("ended", "other", lease_of(opened_at=1000.0))


def test_a_server_that_was_replaced_has_none_but_what_runs() -> None:
    table = Conversations()
    ended, running, elsewhere = lease_of(), lease_of(), lease_of(B)
    for id_, lease in (("ended", ended), ("running", running), ("elsewhere", elsewhere)):
        table.begin(id_, "web", lease)
    ended.close(1.0)
    elsewhere.close(1.0)
    table.forget(A)
    assert table.server_of("ended", "web") is None
    assert table.server_of("running", "web") == A
    assert table.server_of("elsewhere", "web") == B
    assert len(table) == 2


def test_there_are_no_more_than_its_capacity() -> None:
    """Those that ended first make way; where all run, no further one is kept."""
    table = Conversations(capacity=16)
    leases = [lease_of() for _ in range(16)]
    for number, lease in enumerate(leases):
        assert table.begin(f"{number}", "web", lease)
    refused = lease_of()
    assert not table.begin("more", "web", refused) and not refused.outlives_client
    assert table.begin("3", "web", leases[3]), "it is there already"
    for number in (5, 4, 3, 2):
        leases[number].close(10.0 - number)
    assert table.begin("more", "web", lease_of())
    assert len(table) == 14, "an eighth of them, and one"
    gone = [number for number in range(16) if table.server_of(f"{number}", "web") is None]
    assert gone == [3, 4, 5]
    for number in range(100):
        table.begin(f"n{number}", "web", lease_of())
    assert len(table) <= 16
