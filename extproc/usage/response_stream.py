"""The streams by which Envoy sends responses, beside those that ask where a request goes.

Both are calls of the same method. That of a response names its exchange in a header of the call,
and nothing is said on it: Envoy waits for no reply.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from extproc.header_names import USAGE
from extproc.pb import external_processor_pb2 as pb
from extproc.transport import Call, CallHandler
from extproc.transport.call import ServeCall
from extproc.transport.status import INVALID_ARGUMENT, OK
from extproc.usage.meter import Response

PREFIX: Final = "exchange="
"""In the header `USAGE` of the call, before the id of the exchange, which may be empty."""
NO_MESSAGE: Final = "not a valid message"

log = logging.getLogger("coxswain.usage")


class Responses(Protocol):
    """What takes the responses: a `UsageMeter`, or a front, which passes their counts on."""

    def open(self, exchange_id: str) -> Response:
        """A response begins."""

    def close(self, response: Response, *, is_whole: bool) -> None:
        """No more of it comes; `is_whole`: that was all of it."""


def with_responses(
    serve: ServeCall, meter: Responses, is_known: Callable[[str], bool]
) -> ServeCall:
    """Serve calls with `serve`, but those of responses with `meter`. `is_known` says whether an
    exchange is one of this picker's."""

    def open_(call: Call) -> CallHandler:
        for name, value in call.metadata:
            if name == USAGE and isinstance(value, str):
                exchange_id = value.removeprefix(PREFIX)
                return ResponseStream(call, meter, exchange_id, is_known=is_known(exchange_id))
        return serve(call)

    return open_


class ResponseStream:
    """One response. It is ended when all of it has come, or at once if nobody knows its exchange:
    a rejection of the picker's, or one of a picker that is gone."""

    def __init__(self, call: Call, meter: Responses, exchange_id: str, *, is_known: bool) -> None:
        self._call = call
        self._meter = meter
        self._response: Response | None = None
        if is_known:
            self._response = meter.open(exchange_id)
        else:
            call.finish(OK)

    def receive(self, message: bytes) -> None:
        response = self._response
        if response is None:
            return
        try:
            request = pb.ProcessingRequest.FromString(message)
        except DecodeError:
            log.warning("the response of exchange %s: %s", response.exchange_id, NO_MESSAGE)
            self._call.finish(INVALID_ARGUMENT, NO_MESSAGE)
            self.gone()
            return
        part = request.response_body
        response.tail.add(part.body)
        if part.end_of_stream:
            self._call.finish(OK)
            self._end(is_whole=True)

    def half_closed(self) -> None:
        self._call.finish(OK)
        self._end(is_whole=False)

    def gone(self) -> None:
        self._end(is_whole=False)

    def _end(self, *, is_whole: bool) -> None:
        response, self._response = self._response, None
        if response is not None:
            self._meter.close(response, is_whole=is_whole)
