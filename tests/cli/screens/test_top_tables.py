"""Claims about extproc/cli/screens/top_tables.py: a line for each endpoint and each request."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from extproc.cli.screens.top_tables import Frame, endpoint_lines, issue_lines, request_lines
from extproc.pb.coxswain.v1 import admin_pb2 as pb


def drawn(what: RenderableType, width: int) -> list[str]:
    screen = Console(file=StringIO(), width=width)
    screen.print(what)
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue().splitlines()


def frame(width: int) -> Frame:
    return Frame(address="127.0.0.1:9003", width=width)


def words(line: str) -> str:
    return " ".join(line.split())


def endpoint(**changes: Any) -> pb.Endpoint:
    whole: dict[str, Any] = {
        "address": "10.0.0.1:8080",
        "name": "gpu-1",
        "health": pb.HEALTH_READY,
        "intent": pb.INTENT_ACTIVE,
        "slots": pb.Slots(total=4, leased=2, foreign=1, idle=1),
        "models": [pb.Model(name="tiny", is_loaded=True)],
        "observed_age_s": 0.4,
        "is_fresh": True,
        "is_known_to_envoy": True,
        "is_pickable": True,
    }
    return pb.Endpoint(**(whole | changes))


def test_an_endpoint_shows_who_has_its_slots() -> None:
    """Leased, foreign and idle in its bar; those in use of all beside it."""
    header, line = drawn(endpoint_lines([endpoint()], frame(140)), 140)
    assert words(header) == "ENDPOINT STATE SLOTS BUSY MODEL AGE"
    assert words(line) == "gpu-1 (10.0.0.1:8080) ready ██▒· 3/4 tiny 0.4s"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (160, ["1000 held 2500 reserved 5436 free/8192", "0 held 0 reserved 131000 free/131072?"]),
        (80, ["5436 free", "131k free?"]),
    ],
)
def test_shared_contexts_have_a_column_of_tokens(width: int, shown: list[str]) -> None:
    """With a question mark where it is only guessed; one with split contexts has nothing there."""
    known = pb.Tokens(total=8192, held=1000, reserved=2500, free=5436, source="arguments")
    guess = pb.Tokens(total=131_072, free=131_000, source="guess")
    three = [endpoint(tokens=known), endpoint(tokens=guess), endpoint()]
    header, first, second, third = drawn(endpoint_lines(three, frame(width)), width)
    assert "BUSY TOKENS MODEL" in words(header)
    assert f"3/4 {shown[0]} tiny 0.4s" in words(first)
    assert f"3/4 {shown[1]} tiny 0.4s" in words(second)
    assert "3/4 tiny" in words(third)


def test_one_that_was_never_seen_says_so() -> None:
    unseen = endpoint(slots=pb.Slots(), models=[])
    unseen.ClearField("observed_age_s")
    _, line = drawn(endpoint_lines([unseen], frame(140)), 140)
    assert words(line).endswith("ready - never")


def test_a_narrow_screen_has_names_without_addresses() -> None:
    """And every endpoint takes one line."""
    many = [endpoint(), endpoint(name="", address="10.0.0.2:8080"), endpoint(name="n" * 60)]
    lines = drawn(endpoint_lines(many, frame(80)), 80)
    assert len(lines) == 4 and all(len(line) <= 80 for line in lines)
    assert words(lines[1]).startswith("gpu-1 ready")
    assert words(lines[2]).startswith("10.0.0.2:8080 ready") and "nnn…" in lines[3]


def test_no_endpoints_is_an_invitation() -> None:
    assert "coxswain endpoints add" in drawn(endpoint_lines([], frame(80)), 80)[0]


def test_issues_are_a_line_each_with_their_remedy() -> None:
    """What the picker cannot read comes first. Of others' words nothing moves the cursor."""
    issues = [
        pb.Issue(code="unreachable", message="refused", remedy="start it"),
        pb.Issue(code="bad-answer", message="\x1b[2J", remedy="look there"),
    ]
    problem, first, second = issue_lines(["\x1b[2Jno file"], [endpoint(issues=issues), endpoint()])
    assert problem.plain.startswith("! ") and "no file" in problem.plain
    assert "\x1b" not in problem.plain
    assert first.plain == "! gpu-1 (10.0.0.1:8080): unreachable: refused -> start it"
    assert "\x1b" not in second.plain


@pytest.mark.parametrize(
    ("changes", "header"),
    [
        ({}, "EXCHANGE STATE ENDPOINT AGE WAITED EXPECTED"),
        ({"model": "big"}, "EXCHANGE STATE ENDPOINT MODEL AGE WAITED EXPECTED"),
        ({"criticality": "critical"}, "EXCHANGE STATE ENDPOINT CRITICALITY AGE WAITED EXPECTED"),
        ({"client": "team-a"}, "EXCHANGE STATE ENDPOINT CLIENT AGE WAITED EXPECTED"),
    ],
)
def test_columns_of_requests_are_those_that_report_something(
    changes: dict[str, Any], header: str
) -> None:
    one = pb.Request(exchange_id="e1", state=pb.REQUEST_STATE_RUNNING, age_s=1.0, **changes)
    assert words(drawn(request_lines([one], frame(140)), 140)[0]) == header


def test_a_long_name_of_a_client_leaves_room_on_a_narrow_screen() -> None:
    one = pb.Request(
        exchange_id="443f40b28dacae2e",
        state=pb.REQUEST_STATE_RESPONDING,
        endpoint_name="gpu-1",
        client="a-team-with-a-long-name",
        model="qwen2.5-7b-instruct",
        age_s=1.0,
    )
    _, line = drawn(request_lines([one], frame(80)), 80)
    assert "a-team-wi…" in line and "443f40b28dacae2e" in line and len(line) <= 80


def test_requests_name_their_endpoint_or_their_place() -> None:
    """By the name that the operator gave; who waits has a place and an expectation."""
    runs = pb.Request(
        exchange_id="e1",
        state=pb.REQUEST_STATE_RESPONDING,
        endpoint="10.0.0.1:8080",
        endpoint_name="gpu-1",
        age_s=61.0,
    )
    waits = pb.Request(
        exchange_id="e2",
        state=pb.REQUEST_STATE_QUEUED,
        queue_position=3,
        age_s=5.0,
        waited_s=5.0,
        expected_s=12.0,
    )
    lines = drawn(request_lines([runs, waits], frame(80)), 80)
    assert words(lines[1]) == "e1 responding gpu-1 1m01s"
    assert words(lines[2]) == "e2 queued 3 5.0s 12s"
