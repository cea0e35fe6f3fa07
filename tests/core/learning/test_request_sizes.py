"""Claims about extproc/core/learning/request_sizes.py."""

from __future__ import annotations

from extproc.core.learning.request_sizes import SizeClasses
from extproc.core.queue.ticket import UNKNOWN_SIZE


def test_classes_are_doublings_of_the_usual_size() -> None:
    sizes = SizeClasses()
    assert sizes.classify(3.0) == UNKNOWN_SIZE, "nothing to compare with"
    for _ in range(10):
        sizes.request_ended(4.0)
    assert sizes.usual_slot_s == 4.0
    assert [sizes.classify(s)[1] for s in (0.5, 3.0, 4.0, 5.0, 33.0)] == [-3, 0, 0, 0, 3]
    assert sizes.classify(0.0) == UNKNOWN_SIZE


def test_the_share_of_smaller_requests_is_by_their_work() -> None:
    sizes = SizeClasses()
    assert sizes.share_below(5) == 0.0
    for _ in range(1000):
        for size in ((1.0, -2), (9.0, 1)):
            sizes.queued(size)
    assert sizes.share_below(-2) == 0.0
    assert abs(sizes.share_below(1) - 0.1) < 0.01
    assert sizes.share_below(2) > 0.99
