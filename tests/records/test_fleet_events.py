"""Claims about extproc/records/fleet_events.py."""

from __future__ import annotations

from extproc.records.fleet_events import MAX_CHARS, MAX_EVENTS, FleetEvents


def test_events_have_numbers_and_the_oldest_go() -> None:
    events = FleetEvents(lambda: 5.0, lambda: 1005.0)
    assert events.last == 0 and not list(events.after(0))
    for number in range(1, MAX_EVENTS + 3):
        events.add("joined", f"{number}")
    assert events.last == MAX_EVENTS + 2
    kept = list(events.after(0))
    assert len(kept) == MAX_EVENTS and kept[0].id == 3
    assert [each.text for each in events.after(MAX_EVENTS)] == ["2001", "2002"]
    assert next(events.newest_first()).id == events.last
    assert kept[0].at == 5.0 and events.unix_offset_s() == 1000.0


def test_a_text_is_one_line_of_a_sane_length() -> None:
    """Errors of settings have many."""
    events = FleetEvents()
    events.add("reload-rejected", "queue:\n  timeout_s: wrong", at=1.0)
    events.add("issue", "x" * 10_000)
    first, second = events.after(0)
    assert (first.text, first.at) == ("queue: timeout_s: wrong", 1.0)
    assert len(second.text) == MAX_CHARS
