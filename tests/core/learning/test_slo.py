"""Claims about the evaluation of SLOs: extproc/core/learning/slo.py, ttft.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.objective import Objective
from extproc.core.observation import SlotReading
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.steered_fleet import SteeredFleet

TTFT_S = 1.0
TOKEN_S = 0.05
CHAT = Objective(name="chat", ttft_s=TTFT_S)


class SloServer:
    """One server with one slot, and one request with an SLO at a time. All times count from its
    beginning; its true first token comes after `prefill_s`."""

    def __init__(self, prefill_s: float, *, is_stream: bool = True) -> None:
        self.fleet = SteeredFleet(CHAT)
        self.address = self.fleet.add(1)
        self.prefill_s = prefill_s
        self.is_stream = is_stream
        self.task = 0
        self.lease = self.begin()

    def begin(self) -> Lease:
        self.task += 1
        self.lease = self.fleet.pick(objective="chat", prompt_tokens=1000)
        return self.lease

    def at(self, after_s: float) -> float:
        self.fleet.now = self.lease.opened_at + after_s
        return self.fleet.now

    def headers(self, after_s: float, *, is_error: bool = False) -> None:
        now = self.at(after_s)
        self.fleet.dispatcher.responded(
            self.lease, now, is_stream=self.is_stream, is_error=is_error
        )

    def scrape(self, after_s: float) -> None:
        self.at(after_s)
        is_out = after_s >= self.prefill_s
        reading = SlotReading(
            task_id=self.task,
            cached_tokens=0,
            processed_tokens=1000 if is_out else 0,
            decoded_tokens=1 + int((after_s - self.prefill_s) / TOKEN_S) if is_out else 0,
        )
        self.fleet.scrape(self.address, busy_slots=1, slot_readings=(reading,))

    def end(self, after_s: float, end: LeaseEnd = LeaseEnd.SERVED) -> float | None:
        """Returns the estimated seconds to its first token."""
        now = self.at(after_s)
        first_at = self.fleet.dispatcher.release(self.lease, end, now)
        return None if first_at is None else first_at - self.lease.opened_at

    @property
    def results(self) -> list[bool]:
        """Whether the SLO was met, for all evaluated requests."""
        totals = self.fleet.dispatcher.state.slo_attainment.totals()
        met, missed = (int(totals.get(("chat", word), 0)) for word in ("met", "missed"))
        return [True] * met + [False] * missed


def test_early_headers_do_not_meet_the_slo() -> None:
    """They came after 10 ms, the first token after 4 s: a scrape at 2 s without a token proves
    it."""
    server = SloServer(prefill_s=4.0)
    server.headers(0.01)
    server.scrape(0.5)
    assert server.results == []
    server.scrape(2.0)
    assert server.results == [False]
    server.scrape(5.0)
    server.scrape(7.0)
    assert server.end(9.0) == pytest.approx(4.0, abs=0.1)
    assert server.results == [False]


def test_a_scrape_that_sees_tokens_in_time_is_sufficient_proof() -> None:
    server = SloServer(prefill_s=0.3)
    server.headers(0.01)
    server.scrape(0.9)
    assert server.results == [True]
    server.end(60.0)
    assert server.results == [True]


@pytest.mark.parametrize(("prefill_s", "is_met"), [(0.6, True), (1.6, False)])
def test_tokens_traced_back_show_what_bounds_do_not(prefill_s: float, is_met: bool) -> None:
    """No scrape before 3 s: the tokens that were out by then show when they began."""
    server = SloServer(prefill_s)
    server.headers(0.01)
    server.scrape(3.0)
    assert server.results == []
    server.scrape(4.0)
    assert server.results == [is_met]
    assert server.end(5.0) == pytest.approx(prefill_s, abs=0.2)


def test_an_end_in_time_needs_no_scrape() -> None:
    server = SloServer(prefill_s=0.4)
    server.headers(0.01)
    server.end(0.9)
    assert server.results == [True]


def test_late_headers_miss_the_slo_in_any_case() -> None:
    server = SloServer(prefill_s=2.0)
    server.headers(1.5)
    assert server.results == [False]


def test_without_any_proof_the_expected_time_decides() -> None:
    """Headers at once, no scrape, an end long after: expected were 0.1 s and 0.5 ms for a token."""
    server = SloServer(prefill_s=0.6)
    server.headers(0.01)
    assert server.end(20.0) == pytest.approx(0.6)
    assert server.results == [True]


def test_headers_decide_if_they_come_with_first_tokens() -> None:
    """Scrapes proved it five times: the sixth is evaluated by its headers, before any scrape."""
    server = SloServer(prefill_s=0.8)
    for _ in range(5):
        server.headers(0.8)
        server.scrape(2.0)
        server.scrape(3.0)
        server.end(4.0)
        server.fleet.scrape(server.address, busy_slots=0)
        server.begin()
    assert server.results == [True] * 5
    server.headers(0.8)
    assert server.results == [True] * 6
    assert server.end(50.0) == pytest.approx(0.8)
    assert server.results == [True] * 6


@pytest.mark.parametrize(("headers_s", "is_met"), [(0.9, True), (1.1, False)])
def test_an_answer_that_is_no_stream_is_evaluated_by_its_headers(
    headers_s: float, is_met: bool
) -> None:
    """Its first token reaches the client only with the whole of it."""
    server = SloServer(prefill_s=0.2, is_stream=False)
    server.scrape(0.3)
    server.scrape(0.7)
    assert server.results == []
    server.headers(headers_s)
    assert server.results == [is_met]
    assert server.end(headers_s) == pytest.approx(headers_s)


def test_a_client_that_leaves_in_time_without_a_token_does_not_count() -> None:
    server = SloServer(prefill_s=4.0)
    server.headers(0.01)
    assert server.end(0.3, LeaseEnd.ABANDONED) is None
    assert server.results == []


def test_a_client_that_leaves_late_without_a_token_is_a_miss() -> None:
    """Expected after 0.6 s, and the last scrape at 0.9 s saw none: it left after 3."""
    server = SloServer(prefill_s=4.0)
    server.headers(0.01)
    server.scrape(0.9)
    server.scrape(1.2)
    assert server.end(3.0, LeaseEnd.ABANDONED) is not None
    assert server.results == [False]


def test_an_answer_that_never_began_is_evaluated_at_its_end() -> None:
    late = SloServer(prefill_s=9.0)
    assert late.end(3.0, LeaseEnd.ABANDONED) is None
    assert late.results == [False]
    left = SloServer(prefill_s=9.0)
    assert left.end(0.5, LeaseEnd.ABANDONED) is None
    assert left.results == []


def test_the_time_in_the_queue_counts() -> None:
    server = SloServer(prefill_s=0.9)
    ticket = server.fleet.queue(objective="chat", prompt_tokens=1000)
    server.end(0.95)
    assert server.results == [True]
    lease = server.fleet.served(ticket)
    server.fleet.dispatcher.responded(lease, lease.opened_at + 0.1)
    assert server.results == [True, False]


moments = st.floats(0.0, 6.0)


@given(
    prefill_s=st.floats(0.05, 4.0),
    answer_s=st.floats(0.0, 3.0),
    has_early_headers=st.booleans(),
    is_stream=st.booleans(),
    has_left=st.booleans(),
    scrapes_s=st.lists(moments, max_size=6),
)
def test_an_slo_is_evaluated_once_and_never_against_proof(
    prefill_s: float,
    answer_s: float,
    has_early_headers: bool,
    is_stream: bool,
    has_left: bool,
    scrapes_s: list[float],
) -> None:
    """For any scrapes and any server behaviour: a request counts once or, if it broke off in time,
    at most once; and a certain result is the one that counts."""
    server = SloServer(prefill_s, is_stream=is_stream)
    ends_s = prefill_s + answer_s
    if not is_stream:
        headers_s = ends_s
    else:
        headers_s = min(0.01, prefill_s) if has_early_headers else prefill_s
    scrapes_s = sorted(at for at in scrapes_s if at < ends_s)
    events = sorted([(headers_s, 1), *((at, 0) for at in scrapes_s)])
    for at, is_headers in events:
        before = len(server.results)
        server.headers(at) if is_headers else server.scrape(at)
        assert len(server.results) - before <= 1
    end = LeaseEnd.ABANDONED if has_left and is_stream else LeaseEnd.SERVED
    first_s = server.end(ends_s, end)
    assert first_s is None or headers_s - 1e-9 <= first_s <= ends_s + 1e-9
    results = server.results
    assert len(results) == 1 or (not results and end is LeaseEnd.ABANDONED and ends_s <= TTFT_S)
    if not results:
        return
    unseen_s = max([at for at in scrapes_s if at < prefill_s], default=0.0)
    seen_s = min([at for at in scrapes_s if at >= prefill_s], default=ends_s)
    if not is_stream:
        assert results == [ends_s <= TTFT_S]
    elif max(headers_s, unseen_s) > TTFT_S + 1e-9:
        assert results == [False]
    elif seen_s < TTFT_S - 1e-9 and (seen_s < ends_s or end is LeaseEnd.SERVED):
        assert results == [True]
