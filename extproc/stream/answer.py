"""What the answer tells: who served, whom Envoy went past, whether the server is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.lease import LeaseEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extproc.core.address import Address
    from extproc.core.dispatcher import Dispatcher
    from extproc.core.lease import Lease
    from extproc.stream.codec import ResponseHead


def learn(
    dispatcher: Dispatcher,
    response: ResponseHead,
    asked: Sequence[Address],
    lease: Lease | None,
    now: float,
) -> None:
    """Tell the core what the response headers show. `asked` is the list that Envoy walked."""
    if response.is_local_reply:
        if "connection_failure" in response.code_details:
            for address in asked[: response.attempts]:
                dispatcher.connect_failed(address, now)
        return
    served = response.served
    if served is None:
        if lease is not None:
            _answered(dispatcher, response, lease, now)
        return
    # Those before the one who served could not be reached, or answered 503: attempts tell no more.
    for address in asked[: response.attempts - 1]:
        if address != served:
            dispatcher.connect_failed(address, now)
    if lease is not None:
        dispatcher.served_by(lease, served, now)
        _answered(dispatcher, response, lease, now)


def _answered(dispatcher: Dispatcher, response: ResponseHead, lease: Lease, now: float) -> None:
    is_error = not 200 <= response.status < 300
    dispatcher.answered(lease, now, is_stream=response.is_stream, is_error=is_error)


def was_cut(response: ResponseHead | None, *, is_broken: bool, is_cancelled: bool) -> bool:
    """Whether the client did not get a server's whole answer, as far as Envoy tells."""
    if response is None or response.is_local_reply or is_cancelled:
        return True
    return response.is_stream and is_broken


def lease_end(
    response: ResponseHead | None, *, is_cut: bool, is_unsent: bool, is_handed_over: bool
) -> LeaseEnd:
    """How a request ended, for its server's slot."""
    if is_unsent or not may_still_run(response, is_cut=is_cut):
        return LeaseEnd.SERVED
    return LeaseEnd.HANDED_OVER if is_handed_over else LeaseEnd.ABANDONED


def may_still_run(response: ResponseHead | None, *, is_cut: bool) -> bool:
    """Whether the server may still be at work on a request whose stream has ended.

    llama-server sends the headers of an ordinary answer when it has finished, so only an
    event stream that Envoy reported, or an answer that never came, leaves it working. What
    could not be connected was never there.
    """
    if response is not None and "connection_failure" in response.code_details:
        return False
    return is_cut
