"""Claims about extproc/core/slots/model_loading.py: one load of a model at a time."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.observation import ModelReading
from extproc.core.slots.draining_evidence import ARRIVAL_S
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.model_loading import LOAD_TIMEOUT_S, MAX_MODELS, ModelLoadTracker
from tests.fakes.steered_fleet import SteeredFleet

A, B = Address("10.0.0.1", 1), Address("10.0.0.1", 2)
LOADED = ModelReading(name="m")
LOADING = ModelReading(name="m", is_loaded=False, is_loading=True)
UNLOADED = ModelReading(name="m", is_loaded=False)
EARLY = ModelReading(name="m", may_be_loading=True)
"""As an Ollama shows a model from the beginning of its load on."""


def lease_of(fleet: SteeredFleet) -> Lease:
    fleet.add(1)
    return fleet.pick()


def test_a_load_ends_when_its_server_has_the_model_or_no_longer_lists_it() -> None:
    for readings in ({"m": LOADED}, {}):
        loads = ModelLoadTracker()
        loads.start("m", A, 100.0, lease_of(SteeredFleet()))
        assert not loads.may_start("m") and loads.may_start("other")
        assert loads.over(B, readings, 101.0) == []
        assert loads.over(A, readings, 101.0) == ["m"]


def test_a_scrape_that_began_before_a_load_does_not_end_it() -> None:
    """It may have seen the model before it was unloaded, and be outdated."""
    for readings in ({"m": LOADED}, {}):
        loads = ModelLoadTracker()
        loads.start("m", A, 100.0, lease_of(SteeredFleet()))
        assert loads.over(A, readings, 99.0) == []


def test_a_load_that_a_scrape_shows_continues() -> None:
    """Also if the client whose request began it left, ours or a foreign one."""
    loads = ModelLoadTracker()
    lease = lease_of(SteeredFleet())
    loads.start("m", A, 100.0, lease)
    loads.released(lease, 101.0)
    loads.start("n", A, 100.0)
    assert loads.over(A, {"m": LOADING, "n": LOADING}, 102.0) == []
    assert loads.over(A, {"m": UNLOADED, "n": UNLOADED}, 102.0) == ["m", "n"]


def test_a_load_that_no_scrape_shows_yet_may_be_about_to_begin() -> None:
    """While its request runs, and for scrapes that began before that ended."""
    loads = ModelLoadTracker()
    lease = lease_of(SteeredFleet())
    loads.start("m", A, 100.0, lease)
    assert loads.over(A, {"m": UNLOADED}, 200.0) == []
    loads.released(lease, 201.0)
    assert loads.over(A, {"m": UNLOADED}, 200.5) == []
    assert loads.over(A, {"m": UNLOADED}, 201.5) == ["m"]


@pytest.mark.parametrize("is_uploading", [False, True])
def test_a_client_that_leaves_may_have_sent_the_request_that_begins_the_load(
    is_uploading: bool,
) -> None:
    """It is in transit for a while: a scrape that does not show the load yet does not end it."""
    fleet = SteeredFleet()
    address = fleet.add(1)
    loads, lease = ModelLoadTracker(), fleet.pick(is_uploading=is_uploading)
    loads.start("m", address, fleet.now, lease)
    left_at = fleet.now + (9.0 if is_uploading else 0.0)
    fleet.dispatcher.release(lease, LeaseEnd.ABANDONED, left_at)
    loads.released(lease, left_at)
    for after_s, models in ((0.1, []), (ARRIVAL_S, []), (ARRIVAL_S + 0.01, ["m"])):
        assert loads.over(address, {"m": UNLOADED}, left_at + after_s) == models


def test_a_request_that_was_answered_begins_no_load_any_more() -> None:
    fleet = SteeredFleet()
    address = fleet.add(1)
    loads, lease = ModelLoadTracker(), fleet.pick()
    loads.start("m", address, fleet.now, lease)
    fleet.dispatcher.responded(lease, fleet.now + 0.01)
    loads.released(lease, fleet.now + 0.01)
    assert loads.over(address, {"m": UNLOADED}, fleet.now + 0.02) == ["m"]


def test_a_load_times_out() -> None:
    loads = ModelLoadTracker()
    assert loads.next_expiry() is None
    loads.start("m", A, 100.0)
    loads.start("n", B, 150.0)
    assert loads.next_expiry() == 100.0 + LOAD_TIMEOUT_S
    assert loads.expired(99.0 + LOAD_TIMEOUT_S) == []
    assert loads.expired(100.0 + LOAD_TIMEOUT_S) == ["m"]
    assert loads.may_start("m") and not loads.may_start("n")


def test_after_a_slow_load_another_server_loads_the_model() -> None:
    fleet = SteeredFleet()
    for _ in range(2):
        fleet.add(2, models=[ModelReading(name="b", slots=2), UNLOADED])
    first = fleet.pick(model="m").address
    waiting = fleet.queue(model="m")
    fleet.now += LOAD_TIMEOUT_S
    timer = fleet.dispatcher.next_wakeup()
    assert timer is not None and timer <= fleet.now
    fleet.dispatcher.advance(fleet.now)
    assert fleet.served(waiting).address != first


def test_a_load_ends_only_at_its_server() -> None:
    loads = ModelLoadTracker()
    loads.start("m", A, 100.0)
    loads.end("m", B)
    loads.end("n", A)
    assert loads.pending_at(A) == ["m"] and loads.pending_at(B) == []
    loads.end("m", A)
    assert len(loads) == 0


def test_a_load_that_nobody_started_needs_no_end() -> None:
    """Its server may have been lost before."""
    loads = ModelLoadTracker()
    loads.end("m", A)
    loads.start("m", A, 100.0)
    loads.start("n", B, 100.0)
    loads.released(lease_of(SteeredFleet()), 101.0)
    assert (loads.pending_at(A), loads.pending_at(B), len(loads)) == (["m"], ["n"], 2)


def test_what_may_still_be_loading_is_loaded_when_its_request_is_answered() -> None:
    """Or has ended: then nothing says more."""
    fleet = SteeredFleet()
    fleet.add(2)
    loads, leases = ModelLoadTracker(), [fleet.pick() for _ in range(2)]
    for model, lease in zip("mn", leases, strict=True):
        loads.start(model, A, 100.0, lease)
    assert loads.over(A, {"m": EARLY, "n": EARLY}, 200.0) == []
    fleet.dispatcher.responded(leases[0], fleet.now)
    loads.released(leases[1], 201.0)
    assert loads.over(A, {"m": EARLY, "n": EARLY}, 202.0) == ["m", "n"]
    assert loads.usual_s("m") == 0.0, "no scrape shows how long it took"


def test_a_load_that_lasts_longer_than_usual_may_be_a_long_answer() -> None:
    """Its headers come with its end if it is no stream. Until one was seen, nothing is usual."""
    loads, lease = ModelLoadTracker(), lease_of(SteeredFleet())
    loads.start("m", lease.address, 100.0, lease)
    loads.answered(lease, 10.0)
    loads.start("m", lease.address, 200.0, lease)
    assert loads.over(lease.address, {"m": EARLY}, 209.0) == []
    assert loads.over(lease.address, {"m": EARLY}, 211.0) == ["m"]


def test_how_long_a_load_takes_is_learned() -> None:
    """From the scrape that shows the model, or else from its answer; not from foreign answers, nor
    from one by another server, which loaded nothing."""
    fleet = SteeredFleet()
    fleet.add(2)
    loads, lease, other = ModelLoadTracker(), fleet.pick(), fleet.pick()
    assert loads.usual_s("m") == 0.0
    loads.start("m", A, 100.0, lease)
    loads.answered(lease, 3.0)
    loads.answered(other, 3.0)
    assert loads.usual_s("m") == 0.0
    assert loads.over(A, {"m": LOADED}, 104.0) == ["m"]
    assert loads.usual_s("m") == 4.0
    loads.start("m", lease.address, 200.0, lease)
    loads.answered(lease, 2.0)
    assert 2.0 < loads.usual_s("m") < 4.0
    loads.start("n", A, 200.0, other)
    assert loads.over(A, {}, 300.0) == ["n"], "its server is gone"
    assert loads.usual_s("n") == 0.0


def test_the_loads_of_a_bounded_number_of_models_are_known() -> None:
    loads = ModelLoadTracker()
    for number in range(MAX_MODELS + 1):
        loads.start(str(number), A, 100.0)
        loads.over(A, {str(number): LOADED}, 101.0)
        loads.end(str(number), A)
    assert loads.usual_s("0") == 0.0
    assert loads.usual_s("1") == loads.usual_s(str(MAX_MODELS)) == 1.0


def seen(*models: str, took_s: float) -> ModelLoadTracker:
    loads = ModelLoadTracker()
    for model in models:
        loads.start(model, A, 100.0)
        loads.over(A, {model: LOADED}, 100.0 + took_s)
        loads.end(model, A)
    return loads


def test_what_another_process_knew_is_known_unless_loads_were_seen() -> None:
    other = seen("m", took_s=2.0)
    other.restore(seen("m", "n", took_s=8.0).as_plain())
    assert (other.usual_s("m"), other.usual_s("n")) == (2.0, 8.0)
    assert other.as_plain() == (*seen("m", took_s=2.0).as_plain(), ("n", (8.0, 1.0)))
    full = seen(*(str(number) for number in range(MAX_MODELS)), took_s=1.0)
    full.restore(other.as_plain())
    assert len(full.as_plain()) == MAX_MODELS and not full.usual_s("n")


@pytest.mark.parametrize("values", [(-1.0, 1.0), (1.0, -1.0), (float("nan"), 1.0), (1.0,)])
def test_what_is_no_time_of_loads_is_an_error(values: tuple[float, float]) -> None:
    loads = ModelLoadTracker()
    with pytest.raises(ValueError, match=r"no time of loads|not enough values"):
        loads.restore((("m", values),))
    assert not loads.usual_s("m")
