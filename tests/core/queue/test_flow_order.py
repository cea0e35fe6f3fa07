"""Claims about extproc/core/queue/flow_order.py."""

from __future__ import annotations

from math import inf

from extproc.core.queue.flow_order import ARRIVAL_ORDER, Discipline, QueueOrder


def test_in_the_order_of_arrival_nobody_is_passed() -> None:
    assert ARRIVAL_ORDER.overtaken_until(5.0) == -inf
    assert ARRIVAL_ORDER.label is None


def test_by_size_one_may_be_passed_until_the_bound() -> None:
    order = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED, max_overtaken_s=20.0)
    assert order.overtaken_until(5.0) == 25.0
    assert order.label == "shortest_expected"
