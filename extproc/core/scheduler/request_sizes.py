"""The sizes of requests, in slot-seconds: how they compare, and how many of each are queued."""

from math import floor, log
from typing import Final

from extproc.core.prediction.answer_sizes import AnswerSizes
from extproc.core.prediction.statistics import DecayingHistogram, DecayingMean
from extproc.core.queue.ticket import UNKNOWN_SIZE, ExpectedSize

LN_2: Final = log(2.0)
CLASSES_A_DOUBLING: Final = 1
"""Sizes of one class keep their order of arrival: a smaller difference is none for an estimate."""


class RequestSizes:
    """What is learned of sizes. O(1) a call, but for `AnswerSizes` and `share_below`."""

    def __init__(self) -> None:
        self.answers = AnswerSizes()
        self._usual = DecayingMean(decay=0.998, clip=8.0)
        self._queued = DecayingHistogram(decay=0.995)

    @property
    def usual_slot_s(self) -> float:
        """The mean slot-seconds of a request; 0 before any ended."""
        return self._usual.value(0.0)

    def share_below(self, size_class: int) -> float:
        """The share of lower classes in the slot-seconds of the recently queued requests."""
        return self._queued.share_below(size_class)

    def classify(self, slot_s: float) -> ExpectedSize:
        """The size of a request that is about to be queued."""
        usual_s = self.usual_slot_s
        if slot_s <= 0.0 or usual_s <= 0.0:
            return UNKNOWN_SIZE
        return slot_s, floor(CLASSES_A_DOUBLING / LN_2 * log(slot_s / usual_s) + 0.5)

    def queued(self, size: ExpectedSize) -> None:
        """A request of that size was queued."""
        slot_s, size_class = size
        self._queued.add(size_class, slot_s)

    def ended(self, used_slot_s: float) -> None:
        """A request ended that took its slots for that time."""
        self._usual.add(used_slot_s)
