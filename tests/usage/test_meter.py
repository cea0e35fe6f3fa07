"""Claims about extproc/usage/meter.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.observation import (
    Counter,
    EndedTask,
    Observation,
    ScrapeStatus,
    TokenCounters,
)
from extproc.core.rejection import Reason
from extproc.usage import meter as module
from extproc.usage.answer_tail import AnswerTail
from extproc.usage.counts import Tally, UsageCounts, UsageKey
from extproc.usage.ended_tasks import SETTLE_S, UNSHOWN_S
from extproc.usage.meter import WAIT_S, UsageMeter
from extproc.usage.server_account import Leases
from tests.telemetry.records import ADDRESS, record

KEY = UsageKey("web", "chat", "tiny")
TAIL = b'{"usage":{"prompt_tokens":12,"completion_tokens":34,"cached_tokens":5}}'
COUNTED = UsageCounts(
    requests=1, prompt_tokens=12, generated_tokens=34, cached_tokens=5, slot_s=1.5
)


class Metered:
    """A meter with a clock of its own."""

    def __init__(self, leases: Leases | None = None) -> None:
        self.now = 12.0
        self.tally = Tally()
        self.heard: list[UsageCounts] = []
        self.overflows: list[tuple[str, ExchangeRecord | None]] = []
        self.meter = UsageMeter(
            self.tally,
            lambda: self.now,
            lambda: 7200.0,
            lambda _: "tiny",
            lambda _, counts: self.heard.append(counts),
            leases,
            lambda exchange_id, record: self.overflows.append((exchange_id, record)),
        )

    def ended(self, **changes: Any) -> ExchangeRecord:
        """The record of a request by `KEY` that ran for 1.5 s."""
        given: dict[str, Any] = {
            "client": "web",
            "objective": "chat",
            "opened_at": 10.5,
            "slot_s": 1.5,
        }
        found = record(**(given | changes))
        self.meter.record(found)
        return found

    def respond(self, *parts: bytes, is_whole: bool = True, id_: str = "e1") -> None:
        response = self.meter.open(id_)
        for part in parts:
            response.tail.add(part)
        self.meter.close(response, is_whole=is_whole)

    def counts(self) -> UsageCounts | None:
        return self.tally.since_start().get(KEY)


@pytest.fixture
def metered() -> Metered:
    return Metered()


@pytest.mark.parametrize("is_record_first", [True, False])
def test_a_request_is_counted_once_both_halves_are_here(
    metered: Metered, is_record_first: bool
) -> None:
    """In any order, once."""
    if is_record_first:
        metered.ended()
        assert metered.counts() is None
        metered.respond(TAIL)
    else:
        metered.respond(TAIL)
        assert metered.counts() is None
        metered.ended()
    assert metered.counts() == COUNTED
    metered.now += 100
    metered.meter.advance(is_last=True)
    assert metered.counts() == COUNTED
    assert len(metered.meter) == 0
    assert metered.heard == [COUNTED]


def test_a_rejected_request_has_no_tokens(metered: Metered) -> None:
    metered.ended(outcome=Outcome.REJECTED, reason=Reason.QUEUE_FULL, opened_at=None, slot_s=0.0)
    assert metered.counts() == UsageCounts(rejected=1)


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.WITHDRAWN])
def test_what_had_no_slot_does_not_count(metered: Metered, outcome: Outcome) -> None:
    metered.respond(b"<html>", is_whole=False)
    metered.ended(outcome=outcome, opened_at=None)
    assert metered.counts() is None
    assert len(metered.meter) == 0


def test_an_error_of_the_server_has_no_tokens(metered: Metered) -> None:
    """And nothing of it is missing."""
    metered.ended(status=400)
    assert metered.counts() == UsageCounts(requests=1, slot_s=1.5)


def test_a_response_without_counts_is_uncounted(metered: Metered) -> None:
    metered.ended()
    metered.respond(b"{}")
    assert metered.counts() == UsageCounts(requests=1, uncounted=1, slot_s=1.5)


def test_counts_of_a_body_that_passed_the_picker_are_the_records(metered: Metered) -> None:
    """As in full duplex: no other stream comes."""
    metered.ended(is_response_read=True, input_tokens=12, output_tokens=34, cached_tokens=5)
    assert metered.counts() == COUNTED


def scrape(at: float, *ended: EndedTask) -> Observation:
    return Observation(
        address=ADDRESS,
        began_at=at,
        answered_at=at + 0.01,
        status=ScrapeStatus.READY,
        busy_slots=0,
        ended_tasks=ended,
    )


@pytest.mark.parametrize("is_full_duplex", [True, False])
def test_a_client_that_left_is_counted_by_its_servers_slot(
    metered: Metered, is_full_duplex: bool
) -> None:
    metered.meter.observe(scrape(10.0))
    if not is_full_duplex:
        metered.respond(b'data: {"message":{"usage":{"input_tokens":30}}}', is_whole=False)
    metered.ended(outcome=Outcome.BROKEN, status=0, is_response_read=is_full_duplex)
    metered.meter.observe(scrape(12.1, EndedTask(task_id=3, held_tokens=30)))
    metered.now = 12.5 + SETTLE_S
    metered.meter.advance()
    counts = metered.counts()
    assert counts is not None
    assert counts.prompt_tokens + counts.generated_tokens in (30, 31)
    assert (counts.requests, counts.uncounted) == (1, 0)


def test_a_client_that_left_unseen_is_uncounted(metered: Metered) -> None:
    metered.ended(outcome=Outcome.BROKEN, status=0)
    metered.now = 12.5 + UNSHOWN_S
    metered.meter.advance()
    assert metered.counts() == UsageCounts(requests=1, uncounted=1, slot_s=1.5)


def test_a_whole_response_counts_though_its_client_has_left(metered: Metered) -> None:
    metered.respond(TAIL)
    metered.ended(outcome=Outcome.BROKEN)
    assert metered.counts() == COUNTED


def test_an_envoy_that_sends_no_responses_is_noticed(metered: Metered) -> None:
    """Their tokens are not waited for for ever."""
    metered.ended()
    metered.now += WAIT_S + 0.1
    metered.meter.advance()
    assert metered.meter.unread == 1
    metered.now += UNSHOWN_S
    metered.meter.advance()
    assert metered.counts() == UsageCounts(requests=1, uncounted=1, slot_s=1.5)


def test_what_is_open_is_counted_at_the_end(metered: Metered) -> None:
    metered.ended()
    metered.ended(exchange_id="e2", outcome=Outcome.BROKEN, status=0)
    metered.meter.advance(is_last=True)
    assert metered.counts() == UsageCounts(requests=2, uncounted=2, slot_s=3.0)
    assert metered.meter.unread == 0


def test_the_number_of_open_responses_is_bounded(
    metered: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest is counted as it is."""
    monkeypatch.setattr(module, "MAX_RESPONSES", 3)
    metered.ended(exchange_id="e0")
    for number in range(1, 10):
        metered.meter.open(f"e{number}")
    assert len(metered.meter) == 3
    assert metered.counts() == UsageCounts(requests=1, uncounted=1, slot_s=1.5)


def test_servers_that_left_are_forgotten_when_nobody_waits(metered: Metered) -> None:
    metered.meter.observe(scrape(10.0))
    metered.ended(outcome=Outcome.BROKEN, status=0)
    metered.meter.keep_servers(frozenset())
    assert metered.meter._servers
    metered.meter.advance(is_last=True)
    metered.meter.keep_servers(frozenset())
    assert not metered.meter._servers


def test_a_response_that_is_read_again_counts_once(metered: Metered) -> None:
    """The first one was given up, and ends after all."""
    response = metered.meter.open("e1")
    metered.ended()
    metered.now += WAIT_S + 1.0
    metered.meter.advance()
    metered.now += UNSHOWN_S + 1.0
    metered.meter.advance()
    before = metered.counts()
    assert before is not None and before.requests == 1
    metered.meter.open("e1")
    metered.meter.close(response, is_whole=True)
    assert metered.counts() == before


class Idle:
    """The ledger of a picker none of whose requests run."""

    def foreign_slots(self, address: Address) -> int:
        return 0

    def is_draining(self, address: Address) -> bool:
        return False

    def running(self, address: Address, since: float, until: float) -> int | None:
        return 0


class Reconciled(Metered):
    """A meter that reads the counters of one server, which has processed 40 tokens by now."""

    def __init__(self) -> None:
        super().__init__(Idle())
        self.processed, self.cached, self.generated = 40, 0, 30
        self.meter.observe(scrape(self.now))
        self.read()

    def read(self) -> None:
        self.now += 40.0
        assert self.meter.to_scrape() == [ADDRESS]
        assert not self.meter.wants_counters(ADDRESS)
        assert self.meter.observe(scrape(self.now))
        assert self.meter.wants_counters(ADDRESS)
        self.now += 0.1
        counters = TokenCounters(
            began_at=self.now - 0.05,
            processed=Counter(self.processed),
            cached=Counter(self.cached),
            generated=Counter(self.generated),
        )
        assert not self.meter.observe(replace(scrape(self.now), counters=counters))
        self.meter.advance()


def test_counters_are_read_from_the_first_scrape_on_where_they_are_read() -> None:
    assert Metered(Idle()).meter.wants_counters(ADDRESS)
    assert not Metered().meter.wants_counters(ADDRESS)


def test_an_uncounted_request_has_what_the_server_counted() -> None:
    """Its client left before a scrape saw its task; a whole response is counted as it is."""
    metered = Reconciled()
    metered.ended(outcome=Outcome.BROKEN)
    metered.respond(TAIL, id_="e2")
    metered.ended(exchange_id="e2")
    assert metered.counts() == COUNTED
    metered.processed += 7 + 100
    metered.cached += 5 + 20
    metered.generated += 34 + 3
    metered.now += UNSHOWN_S
    metered.meter.advance()
    assert metered.counts() == COUNTED
    assert len(metered.meter) == 1
    metered.meter.observe(scrape(metered.now))  # its slot is seen to be free
    metered.read()
    assert metered.counts() == UsageCounts(
        requests=2, prompt_tokens=132, cached_tokens=25, generated_tokens=37, slot_s=3.0
    )
    assert len(metered.meter) == 0


def test_several_tasks_of_one_request_have_what_the_server_counted() -> None:
    """Its own response counts the first one."""
    metered = Reconciled()
    metered.respond(TAIL)
    metered.ended(tasks=3)
    assert metered.counts() is None
    metered.processed += 7
    metered.cached += 5
    metered.generated += 3 * 34
    metered.read()
    assert metered.counts() == UsageCounts(
        requests=1, prompt_tokens=12, cached_tokens=5, generated_tokens=102, slot_s=1.5
    )


def test_what_the_counters_do_not_say_stays_uncounted() -> None:
    """As when the picker stops before it has read them."""
    metered = Reconciled()
    metered.ended(outcome=Outcome.BROKEN)
    metered.meter.advance(is_last=True)
    assert metered.counts() == UsageCounts(requests=1, uncounted=1, slot_s=1.5)
    assert len(metered.meter) == 0


OVERFLOW = (Path(__file__).parents[1] / "data/llamacpp/overflow_stream_chat.txt").read_bytes()


@pytest.mark.parametrize("is_read_elsewhere", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_an_overflow_at_the_end_of_a_stream_is_heard_of(
    is_first: bool, is_read_elsewhere: bool
) -> None:
    """Before or behind the end of its exchange, by the picker or by a front."""
    metered = Metered()
    tail = AnswerTail(was_overflow=True)
    found = None if is_first else metered.ended()
    if is_read_elsewhere:
        metered.meter.add_read("e1", tail, is_whole=True)
    else:
        metered.respond(OVERFLOW[:-20], OVERFLOW[-20:])
    assert metered.overflows == [("e1", found)]
    assert (found or metered.ended()).is_overflow
    metered.respond(TAIL, id_="e2")
    metered.respond(OVERFLOW[: OVERFLOW.rindex(b"data")], id_="e3")
    assert len(metered.overflows) == 1
