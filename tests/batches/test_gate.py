"""Claims about extproc/batches/gate.py."""

from __future__ import annotations

from extproc.batches.gate import UNSEEN_S, Capacity, Gate, reserve


def test_the_reserve_is_what_arrives_while_a_slot_is_given_back() -> None:
    assert reserve(0.0) == 0
    assert reserve(0.5, 0.15) == 0, "hardly ever one arrives"
    assert reserve(9.6, 0.15) == 2
    assert reserve(4.8, 0.15) == 1
    counts = [reserve(rate) for rate in range(200)]
    assert counts == sorted(counts)
    assert reserve(1e6) > 100_000


def test_lines_go_to_idle_slots_beyond_the_reserve() -> None:
    gate = Gate()
    assert gate.room(Capacity(slots=8, busy=3), 0.0) == 5
    assert gate.room(Capacity(slots=64, busy=32, arrivals_per_s=9.6), 0.0) == 30
    assert gate.room(Capacity(slots=64, busy=62, arrivals_per_s=9.6), 0.0) == 0
    assert gate.settles_at is None


def test_lines_that_the_picker_does_not_show_yet_count() -> None:
    gate = Gate()
    gate.heard(3, 0.0)
    for _ in range(4):
        gate.begun(0.0)
    assert gate.room(Capacity(slots=8, busy=3), 0.1) == 1
    gate.heard(5, 0.1)
    assert gate.room(Capacity(slots=8, busy=5), 0.1) == 1
    gate.rejected()
    assert gate.room(Capacity(slots=8, busy=5), 0.1) == 2
    assert gate.settles_at == UNSEEN_S
    assert gate.room(Capacity(slots=8, busy=5), UNSEEN_S) == 3, "it is not waited for for ever"


def test_an_own_line_that_ended_hides_none_that_began() -> None:
    gate = Gate()
    gate.heard(8, 0.0)
    gate.ended()
    gate.begun(0.0)
    gate.heard(8, 0.1)
    assert gate.room(Capacity(slots=9, busy=8), 0.1) == 1


def test_one_is_given_back_for_each_that_waits_and_only_once() -> None:
    gate = Gate()
    full = Capacity(slots=8, busy=10, arrivals_per_s=9.6)
    gate.heard(10, 0.0)
    assert gate.room(full, 0.0) == -2
    gate.given_back(0.0)
    gate.given_back(0.0)
    assert gate.room(full, 0.1) == 0
    gate.heard(9, 0.1)
    assert gate.room(Capacity(slots=8, busy=9), 0.1) == 0
    assert gate.room(Capacity(slots=8, busy=10), 0.1) == -1, "one more waits"
    assert gate.room(full, 2.0) == -2, "the slots were not seen to be free"
    assert gate.room(Capacity(slots=8, busy=8, arrivals_per_s=9.6), 2.0) == 0, "nobody waits"
