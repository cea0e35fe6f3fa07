"""Claims about extproc/core/slots/lease.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.slots.lease import Lease, LeaseError, LeaseState


def lease() -> Lease:
    return Lease(7, Address("10.0.0.1", 8080), 2, 1.0)


def test_a_served_lease_closes() -> None:
    """open -> closed."""
    served = lease()
    served.close(1.0)
    assert served.state is LeaseState.CLOSED
    assert served.left_at is None


def test_an_abandoned_lease_drains_first() -> None:
    """open -> draining -> closed, and it records when its client left."""
    abandoned = lease()
    abandoned.leave(3.0)
    assert (abandoned.state, abandoned.left_at) == (LeaseState.DRAINING, 3.0)
    abandoned.close(1.0)
    assert abandoned.state is LeaseState.CLOSED


def test_a_second_release_raises() -> None:
    """To free a slot twice is a bug of the caller, and raises."""
    closed = lease()
    closed.close(1.0)
    with pytest.raises(LeaseError, match="7 was released twice"):
        closed.close(1.0)
    with pytest.raises(LeaseError, match="it is closed"):
        closed.leave(3.0)


def test_a_client_leaves_once() -> None:
    """A draining lease cannot be left again: that would move `left_at`."""
    draining = lease()
    draining.leave(3.0)
    with pytest.raises(LeaseError, match="it is draining"):
        draining.leave(4.0)
    assert draining.left_at == 3.0


def test_repr_shows_the_important_attributes() -> None:
    """Lease, endpoint, weight and state appear in a log line."""
    assert repr(lease()) == "Lease(7, 10.0.0.1:8080, open, 2 slots)"
