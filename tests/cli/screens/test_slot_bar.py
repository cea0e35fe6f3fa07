"""Claims about extproc/cli/screens/top_tables.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.cli.screens.top_tables import slot_bar
from extproc.pb.coxswain.v1 import admin_pb2 as pb

COUNTS = st.integers(0, 5000)


def test_a_sign_for_each_slot() -> None:
    """Each kind with a sign of its own; also where there is only ASCII."""
    slots = pb.Slots(total=7, leased=3, foreign=1, idle=2, unusable=1)
    assert slot_bar(slots, 10).plain == "███▒··x"
    assert slot_bar(slots, 10, is_ascii=True).plain == "###+..x"
    assert slot_bar(pb.Slots(), 10).plain == ""


@given(counts=st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), width=st.integers(4, 60))
def test_many_slots_are_shares(counts: tuple[int, int, int, int], width: int) -> None:
    """The bar is never wider than it may be, and what is there at all is seen."""
    leased, foreign, idle, unusable = counts
    slots = pb.Slots(leased=leased, foreign=foreign, idle=idle, unusable=unusable)
    bar = slot_bar(slots, width, is_ascii=True).plain
    assert len(bar) == min(width, sum(counts))
    for sign, count in zip("#+.x", counts, strict=True):
        assert (sign in bar) == (count > 0)
