"""The accounting fails on false records, on each rule's own grounds; and true records pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigs.chaos.accounting import judge
from rigs.chaos.load import NO_ANSWER
from rigs.chaos.records import Arrival, Call, Closed, Ended, Leftover, Line, Records, Window

ONE, OTHER = "127.0.0.1:1", "127.0.0.1:2"


def call(**changes: Any) -> Call:
    """A request that was served."""
    served = {
        "id": "chaos-1",
        "kind": "whole",
        "sent_at": 10.0,
        "ended_at": 11.0,
        "status": 200,
        "endpoint": ONE,
        "body_bytes": 7,
        "is_whole": True,
    }
    return Call(**{**served, **changes})


def arrival(**changes: Any) -> Arrival:
    answered = {
        "id": "chaos-1",
        "server": ONE,
        "at": 10.1,
        "status": 200,
        "first_byte_at": 10.4,
        "last_byte_at": 10.9,
        "closed_at": 10.95,
        "is_whole": True,
    }
    return Arrival(**{**answered, **changes})


def line(**changes: Any) -> Line:
    told = {
        "id": "chaos-1",
        "status": 200,
        "endpoint": ONE,
        "attempts": 1,
        "bytes_out": 7,
        "flags": "",
        "details": "via_upstream",
    }
    return Line(**{**told, **changes})


def ended(**changes: Any) -> Ended:
    told = {"id": "chaos-1", "outcome": "served", "endpoint": ONE, "status": 200}
    return Ended(**{**told, **changes})


def records(**changes: Any) -> Records:
    true = Records(
        calls=[call()],
        arrivals=[arrival()],
        lines=[line()],
        ended=[ended()],
        slots={ONE: 1, OTHER: 1},
    )
    return replace(true, **changes)


def rejection(reason: str = "queue-timeout", **changes: Any) -> Records:
    """Refused by the picker after the second that it allowed."""
    status = 504 if reason == "queue-timeout" else 503
    rejected = call(status=status, reason=reason, endpoint="", patience_s=1.0, **changes)
    return records(
        calls=[rejected],
        arrivals=[],
        lines=[line(status=status, endpoint="", details="")],
        ended=[ended(outcome=reason, endpoint="-", status=0)],
    )


def broken(records: Records) -> list[str]:
    return sorted({finding.rule for finding in judge(records).findings})


def test_true_books_pass() -> None:
    assert judge(records()).findings == []
    assert judge(rejection()).findings == []
    left = call(status=0, is_whole=False, has_left=True, body_bytes=0)
    assert judge(records(calls=[left], arrivals=[], lines=[], ended=[])).findings == []


HUNG = call(status=0, is_whole=False, error=NO_ANSWER, body_bytes=0)
CUT = call(is_whole=False, error="reset", body_bytes=3)
FAILED = {"status": 503, "reason": "", "body_bytes": 7}
SECOND = arrival(server=OTHER, at=10.2)


@pytest.mark.parametrize(
    ("rule", "false"),
    [
        ("lost", records(calls=[HUNG])),
        ("unexplained", records(calls=[CUT])),
        ("unexplained", records(calls=[call(is_sound=False)])),
        (
            "spoiled",
            records(
                calls=[call(status=400, reason="400")],
                arrivals=[arrival(status=400)],
                lines=[line(status=400)],
            ),
        ),
        ("unexplained", records(calls=[call(**FAILED)], lines=[line(status=503)])),
        ("no-endpoint", rejection("no-endpoint")),
        ("twice", records(arrivals=[arrival(), SECOND])),
        ("twice", replace(rejection(), arrivals=[arrival()])),
        ("early", rejection(ended_at=10.5)),
        ("log", records(lines=[])),
        ("log", records(lines=[line(), line()])),
        ("log", records(lines=[line(status=503)])),
        ("log", records(lines=[line(bytes_out=8)])),
        ("log", records(lines=[line(endpoint=OTHER)])),
        ("log", records(arrivals=[])),
        ("log", records(lines=[line(), line(id="chaos-2")])),
        ("log", records(arrivals=[arrival(), arrival(id="chaos-2", at=20)])),
        ("picker", records(ended=[])),
        ("picker", records(ended=[ended(), ended()])),
        ("picker", records(ended=[ended(outcome="withdrawn")])),
        ("picker", replace(rejection(), ended=[])),
        ("leftover", records(leftovers=[Leftover(what="leased", value=1)])),
    ],
)
def test_false_books_fail(rule: str, false: Records) -> None:
    assert rule in broken(false)


def two(at: float, **changes: Any) -> Records:
    """Two requests at one server with one slot, the second one at `at`."""
    return records(
        calls=[call(), call(id="chaos-2", **changes)],
        arrivals=[arrival(), arrival(id="chaos-2", at=at, last_byte_at=at + 1, closed_at=at + 1)],
        lines=[line(), line(id="chaos-2")],
        ended=[ended(), ended(id="chaos-2")],
    )


def test_a_full_server_is_full_until_its_answer_was_written() -> None:
    assert broken(two(10.5)) == ["full"]
    assert broken(two(10.9)) == []
    unfinished = two(10.92)
    unfinished.arrivals[0].is_whole = False
    assert broken(unfinished) == []
    unfinished.arrivals[0].closed_at = 0.0
    assert "full" in broken(unfinished)


def test_what_bypassed_the_picker_may_wait_inside_the_server() -> None:
    """For longer than the window in which it came; once its response has begun it is seen."""
    away = Window(what="kill", began_at=9.9, ended_at=10.1, excuses=frozenset({"full"}))
    behind = replace(two(10.7), windows=[away])
    behind.arrivals[0].first_byte_at = 10.8
    assert broken(behind) == []
    behind.arrivals[0].first_byte_at = 10.2
    assert broken(behind) == ["full"]


def test_a_leaving_may_reach_the_server_late() -> None:
    left = two(10.7)
    left.calls[0] = call(has_left=True, ended_at=10.3, status=0, is_whole=False, body_bytes=0)
    left.arrivals[0].is_whole = False
    assert "full" not in broken(left)
    left.arrivals[0].closed_at = 11.5
    assert "full" in broken(left)


def test_a_slot_is_free_when_its_connection_is_closed_though_the_client_ends_later() -> None:
    """The end of a client over TLS takes its time; its server knows before."""
    left = two(10.7)
    left.calls[0] = call(has_left=True, ended_at=10.9, status=0, is_whole=False, body_bytes=0)
    left.arrivals[0].is_whole = False
    left.arrivals[0].closed_at = 10.6
    assert "full" not in broken(left)
    left.arrivals[0].closed_at = 10.8
    assert "full" in broken(left)


def test_a_request_for_two_slots_takes_two() -> None:
    assert broken(two(10.95, weight=2)) == ["full"]
    assert broken(replace(two(10.95, weight=2), slots={ONE: 2})) == []


def test_where_envoy_goes_on_to_may_be_full() -> None:
    """The fallbacks were named when the request was sent elsewhere."""
    again = two(10.5)
    assert broken(replace(again, lines=[line(), line(id="chaos-2", attempts=2)])) == []


def test_a_later_try_takes_a_slot_from_its_answer_on() -> None:
    """Before that nobody has told the picker where Envoy went on to."""
    retried = [line(attempts=2), line(id="chaos-2")]
    answering = replace(two(10.8), lines=retried)
    assert broken(answering) == []
    answering.arrivals[0].first_byte_at = 10.2
    assert broken(answering) == ["full"]


@pytest.mark.parametrize("why", ["drained", "down"])
def test_nobody_goes_where_the_picker_knows_better(why: str) -> None:
    closed = Closed(server=ONE, why=why, began_at=9.0, ended_at=12.0)
    assert broken(records(closed=[closed])) == ["closed"]
    just_closed = replace(closed, began_at=10.0)
    assert broken(records(closed=[just_closed])) == []
    assert broken(records(closed=[replace(closed, server=OTHER)])) == []


def test_the_rigs_own_fault_explains_a_failure() -> None:
    failed = records(calls=[call(**FAILED)], lines=[line(status=503)])
    failed.arrivals[0].fault, failed.arrivals[0].status = "503", 503
    assert broken(failed) == []


def test_a_window_excuses_its_rules_at_its_server_in_its_time() -> None:
    window = Window(
        what="killed", began_at=10.5, ended_at=10.6, excuses=frozenset({"unexplained"}), server=ONE
    )
    cut = records(calls=[CUT])
    assert judge(replace(cut, windows=[window])).excused == {"unexplained: killed": 1}
    for missed in (
        replace(window, server=OTHER),
        replace(window, excuses=frozenset({"lost"})),
        replace(window, began_at=11.5, ended_at=12.0),
    ):
        assert broken(replace(cut, windows=[missed])) == ["unexplained"]


def test_the_window_of_a_server_excuses_nothing_that_reached_none() -> None:
    window = Window(
        what="killed", began_at=0, ended_at=99, excuses=frozenset({"unexplained"}), server=ONE
    )
    nowhere = records(calls=[CUT], arrivals=[], lines=[line(endpoint="")], windows=[window])
    assert broken(nowhere) == ["unexplained"]
    everywhere = replace(window, server="")
    assert broken(replace(nowhere, windows=[everywhere])) == []


def test_nothing_excuses_what_is_left_over() -> None:
    always = Window(what="all", began_at=0, ended_at=1e9, excuses=frozenset({"leftover"}))
    left = records(leftovers=[Leftover(what="leased", value=1)], windows=[always])
    assert broken(left) == ["leftover"]
