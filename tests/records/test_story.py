"""Claims about extproc/records/story.py: the words are those of the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.exchange_record import SeenTokens
from extproc.core.views.waits import WaitReason
from extproc.records.neighbours import Neighbours
from extproc.records.request_record import RequestRecord, record_of
from extproc.records.story import (
    REASONS,
    Part,
    beside_of,
    cause_of,
    end_of,
    parts_of,
    summary_of,
)
from tests.telemetry.records import record


def served(**changes: Any) -> RequestRecord:
    """One that waited for 6 s, and took 4 s at its server."""
    values: dict[str, Any] = {
        "exchange_id": "e1",
        "ended_at": 1000.0,
        "duration_s": 10.0,
        "arrival_s": 0.0,
        "waited_s": 6.0,
        "queued_before": 3,
        "server_s": 4.0,
        "endpoint": "10.0.0.1:8080",
        "endpoint_name": "gpu-1",
        "outcome": "served",
        "is_stream": True,
    }
    return RequestRecord(**(values | changes))


COUNTED = {
    "is_counted": True,
    "prompt_tokens": 1000,
    "cached_tokens": 750,
    "generated_tokens": 60,
    "prompt_s": 0.5,
    "generated_s": 3.0,
}


def texts(parts: list[Part]) -> dict[str, str]:
    return {part.name: part.text for part in parts}


def test_the_servers_own_times_are_used_where_they_are_known() -> None:
    """The rest is said to be neither."""
    parts = parts_of(served(**COUNTED))
    assert [(part.name, part.seconds, part.is_exact) for part in parts] == [
        ("arrival", 0.0, True),
        ("queue", 6.0, True),
        ("prompt", 0.5, True),
        ("answer", 3.0, True),
        ("other", 0.5, True),
    ]
    said = texts(parts)
    assert "1000 tokens, 750 of them cached (75%), the others at 500/s" in said["prompt"]
    assert said["answer"] == "60 tokens at 20.0 tokens/s"
    one = texts(parts_of(served(**(COUNTED | {"generated_tokens": 1}))))
    assert one["answer"].startswith("1 token at ")
    assert summary_of(served(**COUNTED), parts) == "60% of its 10.0 s went to the queue"


def test_without_them_the_first_token_divides_a_stream() -> None:
    """As it was seen from here, which is said; and the tokens are not known."""
    parts = parts_of(served(first_token_s=1.0))
    assert [(part.name, part.seconds, part.is_exact) for part in parts[2:]] == [
        ("prompt", 1.0, False),
        ("answer", 3.0, False),
    ]
    assert "only usage.path counts" in texts(parts)["answer"]


def test_an_ordinary_response_is_not_divided() -> None:
    """Its headers come at its end, and are no first token."""
    (server,) = parts_of(served(is_stream=False, first_token_s=4.0))[2:]
    assert (server.name, server.seconds) == ("server", 4.0)
    assert "not known apart" in server.text


def test_an_error_is_no_answer_whose_tokens_could_be_known() -> None:
    (server,) = parts_of(served(status=400, first_token_s=4.0))[2:]
    assert (server.name, server.seconds) == ("server", 4.0)
    assert server.text == "until it answered with an error"


def test_what_took_no_time_is_not_divided() -> None:
    """As a rejection by a full queue."""
    at_once = served(duration_s=0.002, waited_s=0.0, server_s=None, outcome="rejected")
    assert summary_of(at_once, parts_of(at_once)) == ""


def test_what_scrapes_saw_is_told_with_its_age() -> None:
    seen = served(
        first_token_s=1.0, prompt_tokens=400, cached_tokens=100, generated_tokens=30, seen_s=0.5
    )
    said = texts(parts_of(seen))
    assert "400 tokens, 100 of them cached (25%)" in said["prompt"]
    assert said["answer"] == "30 tokens when a scrape saw it, 0.50 s before its end"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"waited_s": 0.0, "queued_before": None}, "it did not wait"),
        ({}, "3 were queued when it came; why is not known: the queue is sampled each 0.25 s"),
        (
            {"queued_before": 0, "waits": {"waking": 6.0}, "wait_note": "waits for gpu-2 to wake"},
            (
                "none was queued when it came; the machine of a server for it was being woken; "
                'what was said then: "waits for gpu-2 to wake"'
            ),
        ),
        (
            {"state": "queued", "waits": {"bound-reached": 6.0}, "wait_note": "two run"},
            "3 were queued when it came; as many requests as its bounds allow ran; two run",
        ),
        (
            {
                "queued_before": 1,
                "place": 2,
                "place_of": 5,
                "place_after_s": 0.2,
                "waits": {"model-loading": 2.0, "no-idle-slot": 4.0},
            },
            (
                "1 was queued when it came; its place was 2 of 5 after 0.20 s; "
                "4.00 s: no server that can serve it had a free slot; "
                "2.00 s: its model was being loaded"
            ),
        ),
        ({"waits": {"of-a-later-version": 6.0}}, "3 were queued when it came; of-a-later-version"),
    ],
)
def test_why_it_waited(changes: dict[str, Any], text: str) -> None:
    assert texts(parts_of(served(**changes)))["queue"] == text


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"outcome": "served"}, ""),
        ({"outcome": "served", "is_servers_fault": True}, "gpu-1 broke it off"),
        (
            {"outcome": "served", "is_overflow": True},
            "the context of gpu-1 was full, which ended it",
        ),
        ({"status": 200, "is_servers_fault": True}, "gpu-1 broke it off"),
        ({"status": 200}, "its client left, or Envoy ended it, before the response was whole"),
        ({"status": 0}, "its client left, or Envoy ended it, before the response began"),
        ({"status": 503}, "Envoy got no response from gpu-1"),
        ({"status": 503, "reason": "cancelled"}, "an operator ended it"),
        ({"status": 503, "reason": "upload-stalled"}, "upload-stalled"),
    ],
)
def test_why_it_broke_off(changes: dict[str, Any], cause: str) -> None:
    """As far as that is known, and also in the event of its end."""
    broken = served(**({"outcome": "broken"} | changes))
    assert cause_of(broken) == cause
    assert end_of(broken).endswith(f": {cause}" if cause else "in the queue")


def test_every_reason_to_wait_has_words() -> None:
    assert REASONS.keys() == set(WaitReason)


def test_a_load_is_a_part_of_the_time_before_the_first_token() -> None:
    assert "load of its model" in texts(parts_of(served(is_cold=True, first_token_s=1.0)))["prompt"]
    assert "load of its model" in texts(parts_of(served(is_cold=True, **COUNTED)))["other"]
    running = served(is_cold=True, state="running", outcome="")
    assert "its model had to be loaded first" in texts(parts_of(running))["server"]


def test_one_that_got_no_server() -> None:
    """A rejection from the queue, and one whose body never came."""
    rejected = served(server_s=None, endpoint="", outcome="rejected", duration_s=6.0)
    assert [part.name for part in parts_of(rejected)] == ["arrival", "queue"]
    late = served(server_s=None, endpoint="", outcome="rejected", duration_s=6.5)
    assert parts_of(late)[-1].seconds == 0.5
    (only,) = parts_of(served(arrival_s=None, server_s=None, outcome="broken"))
    assert (only.name, only.seconds) == ("arrival", 10.0)
    (only,) = parts_of(served(arrival_s=None, server_s=None, outcome="", state="reading"))
    assert only.text == "not enough of it has come to decide"


@pytest.mark.parametrize(
    ("beside", "text"),
    [
        (None, ""),
        ((0, 0.0, 0, True), "no other request ran on gpu-1 meanwhile"),
        ((0, 0.0, 0, False), "whether others ran on gpu-1 meanwhile is not known"),
        (
            (1, 0.5, 1, True),
            "1 other request ran on gpu-1 meanwhile, 0.5 at once on average, 1 at most",
        ),
        (
            (7, 2.44, 3, False),
            "at least 7 other requests ran on gpu-1 meanwhile, 2.4 at once on average, 3 at most",
        ),
    ],
)
def test_who_ran_beside_it(beside: tuple[int, float, int, bool] | None, text: str) -> None:
    found = None
    if beside is not None:
        count, mean, most, all_known = beside
        found = Neighbours(count=count, mean=mean, most=most, all_known=all_known)
    assert beside_of(served(), found).startswith(text)


def test_parts_add_up_to_all_of_the_time() -> None:
    """Of an exchange as the core records it; the clock of Unix time is 90 s ahead here."""
    ended = record(
        opened_at=10.5,
        queued_before=2,
        is_stream=True,
        seen=SeenTokens(prompt=100, processed=40, generated=10, at=11.5),
    )
    found = record_of(ended, None, 90.0)
    assert (found.ended_at, found.server_s, found.first_token_s) == (102.0, 1.5, 0.25)
    assert (found.prompt_tokens, found.cached_tokens, found.generated_tokens) == (100, 60, 10)
    assert found.seen_s == 0.5 and not found.is_counted
    assert sum(part.seconds for part in parts_of(found)) == found.duration_s
