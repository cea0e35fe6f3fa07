"""What another process knew of requests, for a dispatcher that takes them over.

    hold -> adopt each lease -> observe every endpoint -> place each queued request -> assign

Between `hold` and `assign` no slot is assigned, so the order in which the requests arrive does
not matter. A lease is adopted before the endpoint is observed: a scrape that began before would
count its slot as foreign. Times are monotonic seconds of the same machine.
"""

from typing import NamedTuple

from extproc.core.address import Address


class Place(NamedTuple):
    """A queued request's place: the ticket's number, and when it was queued."""

    ticket_id: int
    entered_at: float


class Arrival(NamedTuple):
    """When a request that is heard of late arrived, and when its Envoy gives it up. Both are by
    Envoy's clock, which may be wrong."""

    at: float
    given_up_at: float


class HeldLease(NamedTuple):
    """A lease that an exchange holds. `waited_s` is the time that it was queued."""

    address: Address
    weight_slots: int
    asked_slots: int
    model: str | None
    opened_at: float
    waited_s: float
    fallbacks: tuple[Address, ...] = ()
