"""Reports to the core what the response shows: serving and skipped endpoints, failures."""

from collections.abc import Sequence
from typing import Final

from extproc.core.address import Address
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.request import Kind, Request
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.slots.lease import Lease
from extproc.stream.envoy.codec import ResponseHead
from extproc.stream.server_errors import is_about_request, may_be_overflow


def apply_response(
    dispatcher: Dispatcher,
    response: ResponseHead,
    asked: Sequence[Address],
    lease: Lease | None,
    now: float,
    request: Request | None = None,
) -> None:
    """Report the response headers to the core. `asked` is the list that Envoy tried, `request` what
    is answered, if that is known."""
    served = response.served
    if response.is_local_reply:
        if "connection_failure" in response.code_details:
            for address in asked[: response.attempts]:
                dispatcher.connect_failed(address, now)
            return
    elif served is not None:
        # The endpoints before the serving one could not be reached, or answered 503.
        for address in asked[: response.attempts - 1]:
            if address != served:
                dispatcher.connect_failed(address, now)
    if lease is not None:
        dispatcher.responded(
            lease,
            now,
            served=served,
            has_headers=not response.is_local_reply,
            is_stream=response.is_stream,
            is_error=not 200 <= response.status < 300,
            fault=fault_of(response, request),
            may_be_overflow=may_be_overflow(response),
        )
        if response.status == TOO_MANY and not response.is_local_reply:
            dispatcher.paused(lease, response.retry_after_s, now)


TOO_MANY: Final = 429
"""What a provider answers above its limits: no failure, but no more requests for now."""
UNAVAILABLE: Final = 503
NOT_IMPLEMENTED: Final = 501
"""Errors of a llama-server that was started without a feature; not failures."""


def fault_of(response: ResponseHead, request: Request | None = None) -> Fault | None:
    """How the server failed; None if it did not or it is unknown. 4xx is the client's fault, and so
    is a 500 that is about its request."""
    if request is not None and is_about_request(response, request):
        return None
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


def is_finished(response: ResponseHead, lease: Lease, request: Request | None) -> bool:
    """Whether the server has all of a short success, so that its slot is free already.

    llama-server sends an ordinary response when it has all of it, and starts no task before it has
    freed the slot. As a router it passes on what the model's server sends, and leaves out the
    length; that of generated text is short.
    """
    if response.is_local_reply or response.is_stream or not 200 <= response.status < 300:
        return False
    if response.body_bytes >= 0:
        return response.body_bytes <= SHORT_BYTES
    is_text = request is not None and request.kind is Kind.GENERATION
    return is_text and lease.model_pool != ""
