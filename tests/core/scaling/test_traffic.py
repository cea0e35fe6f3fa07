"""Claims about extproc/core/scaling/traffic.py."""

from __future__ import annotations

from math import inf

import pytest

from extproc.core.scaling.traffic import MAX_NAMES, MEMORY_S, ArrivalRate, Traffic


@pytest.mark.parametrize("read_every", [1, 15, 600])
def test_the_rate_is_followed_however_often_it_is_read(read_every: int) -> None:
    """Ten minutes of one request in two seconds, then none."""
    rate = ArrivalRate(0.0)
    for second in range(600):
        if second % 2 == 0:
            rate.arrived(float(second))
        if second % read_every == 0:
            rate.per_s(float(second))
    assert rate.per_s(600.0) == pytest.approx(0.5, rel=0.05)
    assert rate.per_s(600.0) == rate.per_s(600.0), "reading twice changes nothing"
    assert rate.per_s(600.0 + 5 * MEMORY_S) < 0.01
    assert rate.last_at == 598.0


def test_one_request_is_no_rate() -> None:
    """Nor is a burst at the start, of which it is not known if it goes on."""
    rate = ArrivalRate(0.0)
    assert rate.last_at == -inf
    rate.arrived(0.1)
    assert rate.per_s(0.2) <= 1 / MEMORY_S


def test_service_is_the_mean_of_samples() -> None:
    """An error tells that somebody asked, and nothing about the time of a request."""
    traffic = Traffic()
    assert traffic.service_s("m") is None
    traffic.request_ended("m", 0.001, 1.0, is_sample=False)
    assert traffic.service_s("m") is None and traffic.used_at["m"] == 1.0
    traffic.request_ended("m", 2.0, 2.0, is_sample=True)
    traffic.request_ended("m", 4.0, 3.0, is_sample=True)
    assert traffic.service_s("m") == pytest.approx(3.0, rel=0.02)


def test_names_of_clients_are_bounded() -> None:
    """The least recently used are forgotten."""
    traffic = Traffic()
    for number in range(3 * MAX_NAMES):
        traffic.arrived(f"m{number}", "", float(number))
        traffic.arrived("busy", "", float(number))
        traffic.request_ended(f"m{number}", 1.0, float(number), is_sample=True)
    assert len(traffic.arrivals) == len(traffic.service) == len(traffic.used_at) == MAX_NAMES
    assert ("busy", "") in traffic.arrivals
