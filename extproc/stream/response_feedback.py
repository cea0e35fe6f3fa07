"""Reports to the core what the response shows: serving and skipped endpoints, failures."""

from collections.abc import Sequence
from typing import Final

from extproc.core.address import Address
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.slots.lease import Lease
from extproc.stream.envoy.codec import ResponseHead


def apply_response(
    dispatcher: Dispatcher,
    response: ResponseHead,
    asked: Sequence[Address],
    lease: Lease | None,
    now: float,
) -> None:
    """Report the response headers to the core. `asked` is the list that Envoy tried."""
    if response.is_local_reply:
        if "connection_failure" in response.code_details:
            for address in asked[: response.attempts]:
                dispatcher.connect_failed(address, now)
        elif lease is not None:
            if response.served is not None:
                dispatcher.served_by(lease, response.served, now)
            _blame(dispatcher, response, lease, now)
        return
    served = response.served
    if served is None:
        if lease is not None:
            _answered(dispatcher, response, lease, now)
        return
    # The endpoints before the serving one could not be reached, or answered 503.
    for address in asked[: response.attempts - 1]:
        if address != served:
            dispatcher.connect_failed(address, now)
    if lease is not None:
        dispatcher.served_by(lease, served, now)
        _answered(dispatcher, response, lease, now)


def _answered(dispatcher: Dispatcher, response: ResponseHead, lease: Lease, now: float) -> None:
    is_error = not 200 <= response.status < 300
    dispatcher.answered(lease, now, is_stream=response.is_stream, is_error=is_error)
    if is_error:
        _blame(dispatcher, response, lease, now)


def _blame(dispatcher: Dispatcher, response: ResponseHead, lease: Lease, now: float) -> None:
    fault = fault_of(response)
    if fault is None or (may_be_overflow(response) and dispatcher.overflowed(lease, now)):
        return
    dispatcher.failed(lease, fault, now)


UNAVAILABLE: Final = 503
NOT_IMPLEMENTED: Final = 501
"""Errors of a llama-server that was started without a feature; not failures."""


def fault_of(response: ResponseHead) -> Fault | None:
    """How the server failed; None if it did not or it is unknown. 4xx is the client's fault."""
    if not response.is_local_reply:
        if response.status == UNAVAILABLE:
            return Fault.UNAVAILABLE
        is_failure = response.status >= 500 and response.status != NOT_IMPLEMENTED
        return Fault.SERVER_ERROR if is_failure else None
    details = response.code_details
    if details.startswith("upstream_reset_before_response_started"):
        return Fault.RESET if any(cause in details for cause in _SERVER_LEFT) else None
    return Fault.TIMEOUT if details in _GAVE_UP else None


_SERVER_LEFT: Final = ("connection_termination", "remote_reset", "protocol_error")
_GAVE_UP: Final = frozenset(
    {"upstream_per_try_idle_timeout", "upstream_per_try_timeout", "upstream_response_timeout"}
)


SHORT_BYTES: Final = 16 * 1024
"""A body of at most this length comes with its headers, or right behind them."""


OVERFLOW_STATUS: Final = 500
OVERFLOW_BODY_BYTES: Final = 88
"""The body of llama-server's "Context size has been exceeded.", which is the same everywhere. Its
text is not read: bodies of responses do not pass the picker."""


def may_be_overflow(response: ResponseHead) -> bool:
    """Whether it may say that the context which the server's slots share was full. Streams cannot:
    their status was sent before."""
    return (
        not response.is_local_reply
        and response.status == OVERFLOW_STATUS
        and response.body_bytes == OVERFLOW_BODY_BYTES
    )


def is_finished(response: ResponseHead) -> bool:
    """Whether the server has sent all of a short success, so that its slot is free already.

    llama-server sends an ordinary response when it has all of it, and starts no task before it has
    freed the slot.
    """
    return (
        not response.is_local_reply
        and not response.is_stream
        and 200 <= response.status < 300
        and 0 <= response.body_bytes <= SHORT_BYTES
    )
