"""Requests whose front stands still or is lost: Envoy opens their streams again at another front.

Until they are back no slot is assigned, so that none behind them gets theirs. Those that a core
had queued get back their places. Those that a front got while it stood still are known to nobody:
Envoy says when they arrived, and their places are where they would be then.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Final

from google.protobuf.message import DecodeError

from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.takeover import Place
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec

PLACE_KEPT_S: Final = 5.0
"""How long the place of a request is kept whose front was lost: Envoy asks again at once, or when
its health check notices."""
MAX_PLACES: Final = 10_000
RETURN_S: Final = 1.0
"""How long no slot is assigned after a front was lost, because its requests come back."""
PAUSE_S: Final = 0.3
"""If none has come back for so long, no more do: their clients have left."""
MAX_SILENT_S: Final = 3.0
"""How long no slot is assigned because a front stands still. It is killed before."""
EARLIER_S: Final = 1.0
"""How long before a loss was noticed the first of its requests may have arrived."""
LATE_S: Final = RETURN_S + 0.5
"""How long after a loss Envoy's word counts for when a request arrived."""
MOMENT_S: Final = 0.05
"""A request that is so much older than its stream may have come to a front before."""
CHECK_S: Final = 0.02


class ReturningRequests:
    """Belongs to one event loop. `clock` is monotonic, `wall_clock` is that of Envoys."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._wall_clock = wall_clock
        self._places: OrderedDict[str, tuple[list[Place], float]] = OrderedDict()
        """By request id, which several may share, and until when."""
        self._awaited: set[str] = set()
        """The queued requests that a lost front had, and that come back at once."""
        self._awaits_unknown = False
        """Whether a front was lost that had stood still."""
        self._awaited_until = self._pause_until = 0.0
        self._silent: dict[str, float] = {}
        """The fronts that stand still, and since when that is known."""
        self._lost_at = -inf
        """When a front, or a leader with its fronts, was lost last."""
        self._late_since = 0.0
        """When the first of its requests may have arrived."""
        self._is_taking_over = False
        self._is_checking = False
        self.claimed = 0
        """How many requests got back the place that they had at a lost front."""
        self.late = 0
        """How many got a place by their arrival at Envoy."""

    # Fronts

    def silent(self, front: str) -> None:
        """This front stands still: it may hold requests that came before others."""
        if front not in self._silent:
            self._silent[front] = self._clock()
            self._wait()

    def heard(self, front: str) -> None:
        """It goes on. What it held follows."""
        self._silent.pop(front, None)

    def lost(self, front: str) -> None:
        """It is gone: Envoy opens its streams again elsewhere."""
        now = self._clock()
        silent_at = self._silent.pop(front, None)
        since = (now if silent_at is None else silent_at) - EARLIER_S
        self._late_since = min(since, self._late_since) if self._is_just_lost(now) else since
        self._lost_at = now
        if silent_at is not None:
            self._awaits_unknown = True
            self._expect(now)
        if silent_at is not None or self._places:
            self._wait()

    def leader_lost(self) -> None:
        """A leader on another machine is gone, with its fronts: Envoy has opened their streams
        again here. Nothing is known of them, however long they were queued."""
        self._lost_at, self._late_since = self._clock(), -inf

    # Requests

    def keep(self, request_id: str, place: Place, *, comes_back: bool) -> None:
        """Keep the place of a queued request of a lost front. One that `comes_back` at once is
        waited for: its slot is given to none behind it."""
        now = self._clock()
        places, _ = self._places.get(request_id, ([], 0.0))
        self._places[request_id] = (sorted([*places, place]), now + PLACE_KEPT_S)
        if len(self._places) > MAX_PLACES:
            self._places.popitem(last=False)
        if comes_back:
            self._awaited.add(request_id)
            self._expect(now)
            self._wait()

    def claim(self, message: bytes, *, says_arrival: bool) -> Place | float | None:
        """The place that the request of a new stream had, or when it arrived if that was before a
        front was lost, by the monotonic clock; None for one that has just arrived. `message` is its
        first. `says_arrival`: its Envoy has our configuration for fronts, which writes the time of
        arrival; through any other, the client may have written it."""
        now = self._clock()
        while self._places and next(iter(self._places.values()))[1] < now:
            self._places.popitem(last=False)
        is_late = bool(self._silent) or self._is_just_lost(now)
        if not self._places and not is_late:
            return None
        try:
            request = pb.ProcessingRequest.FromString(message)
            request_id = codec.read_request_head(request.request_headers).id
        except (DecodeError, codec.BadRequestError):
            return None  # the exchange says what is wrong with it
        if request_id in self._places:
            return self._take_place(request_id)
        arrived = codec.read_arrival(request) if is_late and says_arrival else None
        if arrived is None:
            return None
        arrived_at = now - (self._wall_clock() - arrived)
        came_elsewhere_before = now - MOMENT_S if self._silent else self._lost_at
        if arrived_at >= came_elsewhere_before:
            return None
        self.late += 1
        self._pause_until = now + PAUSE_S
        return max(arrived_at, self._earliest(now))

    def claim_by(self, request_id: str, move: Callable[[str, Place], bool]) -> None:
        """Let a request whose stream was opened again before the loss was noticed be moved to the
        place that it had. `move` returns whether there is such a request."""
        kept = self._places.get(request_id)
        if kept is not None and move(request_id, kept[0][0]):
            self._take_place(request_id)

    def _take_place(self, request_id: str) -> Place:
        """The first of the places of this id: it is back."""
        places, _ = self._places[request_id]
        place = places.pop(0)
        if not places:
            del self._places[request_id]
            self._awaited.discard(request_id)
        self.claimed += 1
        self._pause_until = self._clock() + PAUSE_S
        return place

    def _expect(self, now: float) -> None:
        """Requests of a lost front come back at once."""
        self._awaited_until, self._pause_until = now + RETURN_S, now + PAUSE_S

    def _is_just_lost(self, now: float) -> bool:
        return now < self._lost_at + LATE_S

    def _earliest(self, now: float) -> float:
        """Before this no request can have come to a front that is silent or lost now."""
        silent_since = min(self._silent.values(), default=inf) - EARLIER_S
        return min(silent_since, self._late_since) if self._is_just_lost(now) else silent_since

    # The dispatcher

    def hold(self) -> None:
        """Assign no slots until `assign`: a takeover begins."""
        self._is_taking_over = True
        self._dispatcher.hold()

    def assign(self) -> None:
        """Everything is placed: assign slots, or when those are back that are waited for."""
        self._is_taking_over = False
        if not self._must_wait(self._clock()):
            self._dispatcher.assign(self._clock())

    def _wait(self) -> None:
        self._dispatcher.hold()
        if not self._is_checking:
            self._is_checking = True
            asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _must_wait(self, now: float) -> bool:
        if self._silent and now < min(self._silent.values()) + MAX_SILENT_S:
            return True
        is_any_awaited = bool(self._awaited) or self._awaits_unknown
        return is_any_awaited and now < min(self._awaited_until, self._pause_until)

    def _check(self) -> None:
        """Whether all are back. Looked at later than the last claim, as its body may follow."""
        now = self._clock()
        if self._must_wait(now):
            asyncio.get_running_loop().call_later(CHECK_S, self._check)
            return
        self._is_checking = self._awaits_unknown = False
        self._awaited.clear()
        self._silent.clear()
        if not self._is_taking_over:
            self._dispatcher.assign(now)
