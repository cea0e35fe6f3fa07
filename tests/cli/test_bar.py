"""Claims about extproc/cli/bar.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.cli.bar import slot_bar
from extproc.pb.coxswain.v1 import admin_pb2 as pb

COUNTS = st.integers(0, 5000)


def test_a_sign_for_each_slot() -> None:
    """Leased, foreign, idle, each with a sign of its own; also where there is only ASCII."""
    slots = pb.Slots(total=6, leased=3, foreign=1, idle=2)
    assert slot_bar(slots, 10).plain == "███▒··"
    assert slot_bar(slots, 10, is_ascii=True).plain == "###+.."
    assert slot_bar(pb.Slots(), 10).plain == ""


@given(leased=COUNTS, foreign=COUNTS, idle=COUNTS, width=st.integers(3, 60))
def test_many_slots_are_shares(leased: int, foreign: int, idle: int, width: int) -> None:
    """The bar is never wider than it may be, and what is there at all is seen."""
    bar = slot_bar(pb.Slots(leased=leased, foreign=foreign, idle=idle), width, is_ascii=True).plain
    assert len(bar) == min(width, leased + foreign + idle)
    for sign, count in {"#": leased, "+": foreign, ".": idle}.items():
        assert (sign in bar) == (count > 0)
