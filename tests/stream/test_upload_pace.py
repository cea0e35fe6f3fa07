"""Claims about extproc/stream/upload_pace.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.settings.envoy_section import EnvoySettings
from extproc.stream.upload_pace import STOPPED, UploadPace

RATE = 100_000
LIMITS = EnvoySettings(
    request_body_idle_timeout_s=30.0,
    request_body_min_rate_bytes_per_s=RATE,
    request_body_grace_s=2.0,
)
INTERVAL_S = 0.5


def end_of(
    upload: UploadPace, rates: list[float], *, is_wanted: bool = True, first: int = 0
) -> float | None:
    """When an upload is ended that comes at these rates (of the least), an interval each."""
    body_bytes = float(first)
    for number, rate in enumerate(rates, start=1):
        body_bytes += rate * RATE * INTERVAL_S
        why = upload.reported(int(body_bytes), number * INTERVAL_S, is_wanted=is_wanted)
        if why is not None:
            return number * INTERVAL_S
    return None


def test_a_client_that_stops_loses_its_slot_within_the_grace() -> None:
    """With time left for the slot to be seen free; whatever came before the slot was given."""
    for first in (0, 10**9):
        assert end_of(UploadPace(LIMITS, 0.0), [0.0] * 10, first=first) == 1.5


def test_the_least_rate_is_enough_and_no_client_saves_up_for_a_pause() -> None:
    assert end_of(UploadPace(LIMITS, 0.0), [1.0] * 1000) is None
    assert end_of(UploadPace(LIMITS, 0.0), [1000.0] * 10 + [0.0] * 10) == 5.0 + 1.5


def test_a_short_pause_is_made_up_for() -> None:
    assert end_of(UploadPace(LIMITS, 0.0), [2.0, 2.0, 0.0, 0.0, 3.0] * 100) is None


def test_slow_is_slow_only_while_others_wait() -> None:
    """Then it ends soon, however long it was slow before: it gets the whole grace."""
    upload = UploadPace(LIMITS, 0.0)
    assert end_of(upload, [0.01] * 50, is_wanted=False) is None
    ends = [
        upload.reported(25_000 + number, 25.0 + number * INTERVAL_S, is_wanted=True) is not None
        for number in range(1, 5)
    ]
    assert ends == [False, False, True, True]


def test_nothing_at_all_is_too_little_even_while_nobody_waits() -> None:
    upload = UploadPace(LIMITS, 0.0)
    assert upload.reported(10, 0.5, is_wanted=False) is None
    assert upload.reported(10, 30.0, is_wanted=False) is None
    assert upload.reported(10, 30.5, is_wanted=False) == STOPPED


@pytest.mark.parametrize("idle_s", [0.0, 5.0])
def test_either_limit_can_be_left_out(idle_s: float) -> None:
    upload = UploadPace(
        EnvoySettings(request_body_idle_timeout_s=idle_s, request_body_min_rate_bytes_per_s=0), 0.0
    )
    assert end_of(upload, [0.0] * 1000) == (5.5 if idle_s else None)


@given(
    rates=st.lists(st.floats(0.0, 20.0), min_size=1, max_size=200),
    grace_s=st.floats(0.1, 60.0),
    first=st.integers(0, 10**9),
)
def test_others_wait_for_the_least_rate_and_the_grace_at_most(
    rates: list[float], grace_s: float, first: int
) -> None:
    """Whatever a client sends and when, up to the interval of the last report."""
    upload = UploadPace(
        EnvoySettings(
            request_body_idle_timeout_s=0,
            request_body_min_rate_bytes_per_s=RATE,
            request_body_grace_s=grace_s,
        ),
        0.0,
    )
    interval_s = grace_s / 4
    body_bytes, came = first, 0
    for number, rate in enumerate(rates, start=1):
        new = int(rate * RATE * interval_s)
        body_bytes += new
        came += new
        held_s = number * interval_s
        if upload.reported(body_bytes, held_s, is_wanted=True) is not None:
            assert held_s <= came / RATE + grace_s
            return
        assert held_s <= came / RATE + grace_s * 0.63
