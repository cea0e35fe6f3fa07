"""Reads responses for the count of usage at a front: their bytes stay here, their counts go on.

The counts of a response are kept until a core has taken them, so that none is lost with a core.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from extproc.usage.answer_tail import AnswerTail
from extproc.usage.meter import ReadResponse, Response

MAX_KEPT: Final = 100_000
"""More are not kept while there is no core; the oldest is forgotten."""


class HeldResponses:
    """See `Responses`. `say` sends the counts to the core, if there is one."""

    def __init__(self, say: Callable[[ReadResponse], None]) -> None:
        self._say = say
        self._kept: OrderedDict[str, ReadResponse] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, exchange_id: str) -> Response:
        """A response begins."""
        return Response(exchange_id, AnswerTail())

    def close(self, response: Response, *, is_whole: bool) -> None:
        """No more of it comes."""
        tail = response.tail
        is_overflow = tail.is_overflow()
        read = (response.exchange_id, is_whole, tail.events, is_overflow, *tail.usage())
        self._kept[response.exchange_id] = read
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        self._say(read)

    def taken(self, exchange_id: str) -> None:
        """A core has counted it, or knows no such exchange."""
        self._kept.pop(exchange_id, None)

    def say_again(self) -> None:
        """Another core leads: it gets all that was not taken."""
        for read in self._kept.values():
            self._say(read)
