"""Claims about extproc/core/queue/flow_order.py."""

from __future__ import annotations

from math import inf

import pytest

from extproc.core.queue.flow_order import ARRIVAL_ORDER, Discipline, QueueOrder


def test_in_the_order_of_arrival_nobody_is_passed() -> None:
    assert ARRIVAL_ORDER.overtaken_until(5.0) == -inf
    assert ARRIVAL_ORDER.label is None


@pytest.mark.parametrize("discipline", [Discipline.SHORTEST_EXPECTED, Discipline.STARTED_FIRST])
def test_with_classes_one_may_be_passed_until_the_bound(discipline: Discipline) -> None:
    order = QueueOrder(discipline=discipline, max_overtaken_s=20.0)
    assert order.has_classes and not ARRIVAL_ORDER.has_classes
    assert order.overtaken_until(5.0) == 25.0
    assert order.label == discipline.value
