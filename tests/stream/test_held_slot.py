"""Claims about extproc/stream/held_slot.py."""

from __future__ import annotations

import pytest

from extproc.core.decision import Picked
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.request import Request
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.settings.envoy_section import EnvoySettings
from extproc.stream import held_slot
from extproc.stream.held_slot import HeldSlot
from tests.fakes.small_fleet import SmallFleet


def held() -> tuple[SmallFleet, HeldSlot, Lease]:
    """A fleet of one slot, which is held."""
    fleet = SmallFleet(1)
    slot = HeldSlot(fleet.dispatcher)
    lease = fleet.pick()
    slot.take(lease)
    return fleet, slot, lease


def test_what_was_never_taken_is_not_given_back() -> None:
    slot = HeldSlot(SmallFleet(1).dispatcher)
    assert not slot.is_held and slot.opened_at is None and slot.slot_s(7.0) == 0.0
    assert slot.give_back(None, LeaseEnd.SERVED, 7.0) is None


def test_a_slot_is_given_back_once() -> None:
    fleet, slot, lease = held()
    assert slot.opened_at == lease.opened_at
    slot.give_back(None, LeaseEnd.SERVED, fleet.now + 2.0)
    assert not slot.is_held and slot.lease is None
    assert slot.slot_s(fleet.now + 2.0) == 2.0
    other = fleet.pick()  # which has the same slot
    assert slot.give_back(None, LeaseEnd.SERVED, fleet.now) is None
    assert fleet.account(other.address).leases == {other.id: other}


def test_a_finished_slot_is_free_before_its_exchange_ends() -> None:
    fleet, slot, lease = held()
    fleet.dispatcher.responded(lease, fleet.now + 0.5, is_stream=False, is_error=False)
    slot.finish(fleet.now + 1.0)
    assert slot.lease is None
    other = fleet.pick()
    request = Request(id="r", timeout_s=60.0)
    assert slot.give_back(request, LeaseEnd.SERVED, fleet.now + 9.0) == fleet.now + 0.5
    assert slot.slot_s(fleet.now + 9.0) == 1.0, "not for the time in which its client read"
    assert fleet.account(other.address).leases == {other.id: other}


def test_a_lease_that_was_closed_elsewhere_is_not_released_again() -> None:
    fleet, slot, lease = held()
    fleet.finish(lease)
    slot.lease = None
    assert not slot.is_held
    assert slot.give_back(None, LeaseEnd.SERVED, fleet.now) is None
    fleet.pick()


@pytest.mark.skipif(
    not str(held_slot.__file__).endswith(".py"), reason="compiled classes cannot be patched"
)
def test_a_report_that_fails_costs_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, slot, _ = held()
    slot.is_failed = True

    def fails(lease: Lease, fault: Fault, now: float) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(type(fleet.dispatcher), "failed", staticmethod(fails))
    with pytest.raises(RuntimeError, match="injected"):
        slot.give_back(None, LeaseEnd.SERVED, fleet.now)
    fleet.pick()  # the slot


def test_an_upload_counts_only_while_its_slot_is_held() -> None:
    fleet, slot, _ = held()
    request = Request(id="r", timeout_s=60.0)
    fleet.queue()
    limits = EnvoySettings(
        request_body_idle_timeout_s=30.0,
        request_body_min_rate_bytes_per_s=1000,
        request_body_grace_s=2.0,
    )

    def reported(now: float, *, is_whole: bool = False) -> str | None:
        return slot.upload_reported(limits, request, 10, now, is_whole=is_whole, is_cancelled=False)

    assert reported(fleet.now + 0.1) is None
    assert reported(fleet.now + 0.2, is_whole=True) is None
    assert "less than 1000 bytes per second" in (reported(fleet.now + 5.0) or "")
    slot.give_back(request, LeaseEnd.ABANDONED, fleet.now + 5.0)
    assert reported(fleet.now + 9.0) is None


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_full_context_is_not_held_against_its_server_at_a_streams_end(is_shared: bool) -> None:
    """A request that was alone failed like others do."""
    fleet = SmallFleet(8, 8)
    bad = fleet.addresses[0]
    request = Request(id="r", timeout_s=1.0, allowed=frozenset({bad}))
    for _ in range(6):
        if fleet.endpoint(bad).is_ejected:
            break
        slot = HeldSlot(fleet.dispatcher)
        leases = []
        for _ in range(1 + is_shared):
            outcome = fleet.dispatcher.submit(request, fleet.now)
            assert isinstance(outcome, Picked)
            leases.append(outcome.lease)
        slot.take(leases[0])
        slot.is_failed = True
        slot.overflowed(fleet.now)
        slot.give_back(None, LeaseEnd.SERVED, fleet.now)
        for lease in leases[1:]:
            fleet.dispatcher.release(lease, LeaseEnd.SERVED, fleet.now)
    assert bool(fleet.endpoint(bad).overflows) is is_shared
    assert fleet.endpoint(bad).is_ejected is not is_shared
