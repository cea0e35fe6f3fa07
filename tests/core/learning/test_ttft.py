"""Claims about extproc/core/learning/ttft.py, with times computed by hand."""

from __future__ import annotations

from math import inf

import pytest

from extproc.core.address import Address
from extproc.core.learning.in_flight import InFlight, InFlightRequest
from extproc.core.learning.ttft import (
    SLOWEST_UNKNOWN,
    TtftBounds,
    at_end,
    expected_at,
    so_far,
)
from extproc.core.objective import NO_OBJECTIVE
from extproc.core.observation import SlotReading
from extproc.core.prediction.generation_progress import GenerationProgress
from extproc.core.prediction.latency import DEFAULT_ESTIMATE, EndpointLatency, LatencyModel
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.request import Kind, Request
from extproc.core.slots.lease import Lease

HERE = Address("10.0.0.1", 8080)
SENT_AT = 100.0
TOKEN_S = DEFAULT_ESTIMATE.token_s(1)


class Sent:
    """A request that was sent at 100 s."""

    def __init__(self, kind: Kind = Kind.GENERATION, max_tokens: int | None = None) -> None:
        request = Request(
            id="r", timeout_s=1.0, kind=kind, prompt_tokens=1000, max_tokens=max_tokens
        )
        self.lease = Lease(1, HERE, 1, SENT_AT)
        flights = InFlight(FairQueueing(), SloAttainment())
        self.run: InFlightRequest = flights.begin(self.lease, request, NO_OBJECTIVE, SENT_AT, 1.0)

    def scrape(self, at: float, decoded: int) -> None:
        """A scrape of no duration."""
        if self.run.progress is None:
            self.run.progress = GenerationProgress(SENT_AT, at)
        self.run.progress.seen(SlotReading(task_id=1, decoded_tokens=decoded), at, at)

    def headers(self, at: float, *, is_stream: bool = True) -> None:
        self.run.answered_at, self.run.is_stream = at, is_stream

    def so_far(self) -> TtftBounds:
        return so_far(self.lease, self.run, DEFAULT_ESTIMATE)

    def at_end(self, ended_at: float, latency: EndpointLatency | None = None) -> TtftBounds:
        latency = latency or LatencyModel().endpoint(HERE)
        return at_end(self.lease, self.run, latency, DEFAULT_ESTIMATE, ended_at)


def test_without_any_evidence_the_expected_time_counts() -> None:
    """And nothing says that it is not much later."""
    sent = Sent()
    expected = expected_at(sent.lease, sent.run, DEFAULT_ESTIMATE)
    assert expected == SENT_AT + DEFAULT_ESTIMATE.first_token_s(1000)
    assert sent.so_far() == TtftBounds(SENT_AT, expected, inf)


def test_a_cached_prompt_is_expected_sooner() -> None:
    sent = Sent()
    sent.run.cached_tokens = 900.0
    expected = expected_at(sent.lease, sent.run, DEFAULT_ESTIMATE)
    assert expected == SENT_AT + DEFAULT_ESTIMATE.first_token_s(100)


def test_no_first_token_comes_before_the_headers_of_its_stream() -> None:
    sent = Sent()
    sent.headers(150.0)
    assert sent.so_far() == TtftBounds(150.0, 150.0, inf)


def test_headers_of_what_is_no_stream_say_nothing_about_its_beginning() -> None:
    """They come with the end."""
    sent = Sent()
    sent.headers(150.0, is_stream=False)
    assert sent.so_far().earliest_at == SENT_AT


def test_a_scrape_without_tokens_is_a_lower_bound() -> None:
    sent = Sent()
    sent.scrape(120.0, 0)
    assert sent.so_far() == TtftBounds(120.0, 120.0, inf)


def test_the_first_token_is_computed_back_from_the_tokens_that_a_scrape_saw() -> None:
    """Between the scrapes that saw none and some."""
    sent = Sent()
    sent.scrape(101.0, 0)
    sent.scrape(110.0, 9)
    bounds = sent.so_far()
    assert (bounds.earliest_at, bounds.latest_at) == (101.0, 110.0)
    assert bounds.likely_at == pytest.approx(110.0 - 8.5 * TOKEN_S)


def test_the_likely_time_is_always_within_the_bounds() -> None:
    """More tokens than the time allows at the assumed rate; headers after the first scrape."""
    sent = Sent()
    sent.scrape(101.0, 0)
    sent.scrape(102.0, 10_000)
    assert sent.so_far().likely_at == 101.0
    sent.headers(103.0)
    assert sent.so_far() == TtftBounds(103.0, 103.0, 103.0)


def test_an_embedding_comes_all_at_once() -> None:
    assert Sent(Kind.EMBEDDING).at_end(109.0) == TtftBounds(109.0, 109.0, 109.0)


def test_a_complete_response_had_its_first_token_before_its_end() -> None:
    """Of any length, so the expected time is as good as any."""
    sent = Sent()
    expected = expected_at(sent.lease, sent.run, DEFAULT_ESTIMATE)
    assert sent.at_end(900.0) == TtftBounds(SENT_AT, expected, 900.0)
    assert sent.at_end(SENT_AT + 0.001) == TtftBounds(SENT_AT, SENT_AT + 0.001, SENT_AT + 0.001)


def test_a_short_response_ended_soon_after_its_first_token() -> None:
    """Not even at a third of the fleet's rate does it explain more of the time."""
    bounds = Sent(max_tokens=2).at_end(109.0)
    assert bounds.earliest_at == pytest.approx(109.0 - SLOWEST_UNKNOWN * 2 * TOKEN_S)
    assert bounds.likely_at == pytest.approx(109.0 - 2 * TOKEN_S)
    assert bounds.is_narrow(SENT_AT)


def test_a_long_response_may_have_begun_at_any_time() -> None:
    """So many tokens may take longer than it took at all."""
    sent = Sent(max_tokens=100_000)
    assert sent.at_end(109.0).earliest_at == SENT_AT
    assert not sent.at_end(109.0).is_narrow(SENT_AT)


def test_tokens_that_a_scrape_saw_before_the_end_say_more_than_its_length() -> None:
    sent = Sent(max_tokens=2)
    sent.scrape(101.0, 0)
    sent.scrape(102.0, 1)
    assert sent.at_end(150.0) == sent.so_far()
    assert sent.at_end(150.0).latest_at == 102.0


def test_a_scrape_that_was_answered_after_the_end_does_not_count() -> None:
    """Its server may have begun the next request."""
    sent = Sent()
    sent.scrape(120.0, 5)
    assert sent.at_end(110.0).latest_at == 110.0
    assert sent.at_end(110.0).earliest_at <= 110.0


def test_narrow_is_a_quarter_of_the_time_to_its_end() -> None:
    assert TtftBounds(103.0, 103.5, 104.0).is_narrow(SENT_AT)
    assert not TtftBounds(102.9, 103.5, 104.0).is_narrow(SENT_AT)
