"""Continues the exchanges of a core that is gone, from what the fronts hold."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.takeover import Place
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.held_state import (
    FINAL,
    LEASED,
    QUEUED,
    HeldState,
    held_state,
    lease_of,
    place_of,
)
from extproc.stream.running_stream import RunningStream
from extproc.stream.servicer import PROCESS, ExternalProcessor
from extproc.transport import Call, CallHandler
from extproc.transport.patience import is_patient

PLACE_KEPT_S: Final = 5.0
"""How long the place of a request is kept whose front was lost: Envoy asks again at once, or when
its health check notices."""
MAX_PLACES: Final = 10_000
RETURN_S: Final = 1.0
"""How long no slot is assigned after a front was lost, because its queued requests come back."""
PAUSE_S: Final = 0.3
"""If none has come back for so long, no more do: their clients have left."""
CHECK_S: Final = 0.02


class ExchangeContinuer:
    """See `Continuer`: the calls are those of ext_proc. Belongs to one event loop."""

    path: Final = PROCESS

    def __init__(
        self, processor: ExternalProcessor, dispatcher: Dispatcher, clock: Callable[[], float]
    ) -> None:
        self._processor = processor
        self._dispatcher = dispatcher
        self._clock = clock
        self._places: OrderedDict[str, tuple[Place, float]] = OrderedDict()
        self._awaited: set[str] = set()
        """The queued requests that a lost front had, and that come back at once."""
        self._awaited_until = self._pause_until = 0.0
        self.claimed = 0
        """How many requests got back the place that they had at a lost front."""

    def state_of(self, handler: CallHandler) -> HeldState | None:
        return held_state(_stream(handler).exchange)

    def is_leased(self, state: HeldState | None) -> bool:
        return state is not None and state[0] == LEASED

    def place_of(self, state: HeldState | None) -> int | None:
        return state[1] if state is not None and state[0] == QUEUED else None

    def is_final(self, state: HeldState) -> bool:
        return state[0] in FINAL

    def begin(self, call: Call, exchange_id: str, began_at: float) -> CallHandler:
        return self._processor.begin(call, began_at, exchange_id)

    def resume(self, handler: CallHandler, message: bytes, state: HeldState) -> None:
        _stream(handler).resume(message, lease_of(state))

    def place(self, handler: CallHandler, state: HeldState) -> None:
        _stream(handler).exchange.place = place_of(state)

    def leave(self, handler: CallHandler) -> None:
        _stream(handler).exchange.lose_stream()
        ticket = _stream(handler).ticket
        if ticket is None or not ticket.request.id:
            return
        state = held_state(_stream(handler).exchange)
        if state is not None:
            self._places[ticket.request.id] = (place_of(state), self._clock() + PLACE_KEPT_S)
            if len(self._places) > MAX_PLACES:
                self._places.popitem(last=False)
            if is_patient(_stream(handler).metadata):
                self._await(ticket.request.id)

    def claim(self, handler: CallHandler, message: bytes) -> None:
        while self._places and next(iter(self._places.values()))[1] < self._clock():
            self._places.popitem(last=False)
        if not self._places:
            return
        try:
            headers = pb.ProcessingRequest.FromString(message).request_headers
            request_id = codec.read_request_head(headers).id
        except (DecodeError, codec.BadRequestError):
            return  # the exchange says what is wrong with it
        place, _ = self._places.pop(request_id, (None, 0.0))
        if place is not None:
            self.claimed += 1
            self._awaited.discard(request_id)
            self._pause_until = self._clock() + PAUSE_S
            _stream(handler).exchange.place = place

    def _await(self, request_id: str) -> None:
        """Envoy opens its stream again: until then its slot is given to none behind it."""
        now = self._clock()
        self._awaited_until, self._pause_until = now + RETURN_S, now + PAUSE_S
        if not self._awaited:
            self._dispatcher.hold()
            asyncio.get_running_loop().call_later(CHECK_S, self._check)
        self._awaited.add(request_id)

    def _check(self) -> None:
        """Whether all are back. Looked at later than the last claim, as its body may follow."""
        now = self._clock()
        if self._awaited and now < min(self._awaited_until, self._pause_until):
            asyncio.get_running_loop().call_later(CHECK_S, self._check)
            return
        self._awaited.clear()
        self._dispatcher.assign(now)

    def hold(self) -> None:
        self._dispatcher.hold()

    def assign(self) -> None:
        if not self._awaited:  # else when these are back
            self._dispatcher.assign(self._clock())


def _stream(handler: CallHandler) -> RunningStream:
    assert isinstance(handler, RunningStream)
    return handler
