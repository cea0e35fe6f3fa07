"""Claims about extproc/cli/screens/endpoint_table.py: what an operator reads of a fleet."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from extproc.cli.screens.endpoint_table import models, state, table_of
from extproc.pb.coxswain.v1 import admin_pb2 as pb

UNREACHABLE = pb.Issue(code="unreachable", message="nobody listens", remedy="start it")


def words(line: str) -> str:
    """What stands in its columns, however wide they are."""
    return " ".join(line.split())


def drawn(what: RenderableType, width: int = 130) -> list[str]:
    screen = Console(file=StringIO(), width=width)
    screen.print(what)
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue().splitlines()


def endpoint(**changes: object) -> pb.Endpoint:
    whole: dict[str, object] = {
        "address": "10.0.0.1:8080",
        "name": "gpu-1",
        "health": pb.HEALTH_READY,
        "intent": pb.INTENT_ACTIVE,
        "slots": pb.Slots(total=8, leased=3, foreign=1, idle=4),
        "models": [pb.Model(name="org/tiny", is_loaded=True)],
        "observed_age_s": 0.4,
        "is_fresh": True,
        "is_known_to_envoy": True,
        "is_pickable": True,
    }
    return pb.Endpoint(**(whole | changes))  # type: ignore[arg-type]


def test_columns_and_sums() -> None:
    """State, slots idle, leased, foreign and in all, model, age; the sums below when several."""
    both = [endpoint(), endpoint(address="10.0.0.2:8080", name="")]
    header, first, second, sums = drawn(table_of(both))
    assert words(header) == "ENDPOINT STATE IDLE LEASED FOREIGN TOTAL MODEL AGE ISSUES"
    assert words(first) == "gpu-1 (10.0.0.1:8080) ready 4 3 1 8 tiny 0.4s"
    assert words(second).startswith("10.0.0.2:8080")
    assert words(sums) == "2 endpoints 8 6 2 16"
    assert len(drawn(table_of(both[:1]))) == 2, "one endpoint is its own sum"


def test_kinds_and_tiers_are_shown_where_there_are_several() -> None:
    """And use by others only where the server shows it."""
    both = [
        endpoint(runner="llama-server", is_foreign_known=True, tier=1),
        endpoint(address="10.0.0.2:443", name="far", runner="openai", tier=2),
    ]
    header, first, second, _ = drawn(table_of(both))
    assert words(header) == "ENDPOINT KIND TIER STATE IDLE LEASED FOREIGN TOTAL MODEL AGE ISSUES"
    assert words(first) == "gpu-1 (10.0.0.1:8080) llama-server 1 ready 4 3 1 8 tiny 0.4s"
    assert words(second) == "far (10.0.0.2:443) openai 2 ready 4 3 ? 8 tiny 0.4s"
    assert "KIND" not in drawn(table_of(both[:1]))[0]


def test_what_a_machine_does_stands_beside_the_health_of_its_endpoint() -> None:
    woken = endpoint(health=pb.HEALTH_OFF, is_pickable=False, is_waking=True)
    assert state(woken).plain == "off waking"
    assert state(endpoint(is_pickable=False, is_going_off=True)).plain == "ready going-off"


@pytest.mark.parametrize("intent", [pb.INTENT_ACTIVE, pb.INTENT_DISABLED])
def test_eighty_columns_keep_every_number(intent: pb.Intent) -> None:
    """Names give way and states fold; no column leaves the screen."""
    name = "a-rather-long-name-of-a-server-in-a-rack"
    one = endpoint(name=name, intent=intent, issues=[UNREACHABLE], observed_age_s=185.0)
    lines = drawn(table_of([one, endpoint(name="")], 80), 80)
    assert words(lines[0]) == "ENDPOINT STATE IDLE LEASED FOREIGN TOTAL MODEL AGE ISSUES"
    assert all(len(line) <= 80 for line in lines)
    assert "a-rather" in lines[1] and "…" in lines[1]
    assert words(lines[1]).endswith("4 3 1 8 tiny 3m05s 1")
    assert ("disabled" in " ".join(lines[1:3])) == (intent == pb.INTENT_DISABLED)
    assert any(line.startswith("10.0.0.1:8080 ") for line in lines), "an address is whole"


def test_each_issue_has_its_remedy_below() -> None:
    """With the endpoint that it is about; escape sequences of a server do nothing."""
    nasty = pb.Issue(code="bad-answer", message="\x1b[2J", remedy="look there")
    sick = endpoint(health=pb.HEALTH_DOWN, issues=[UNREACHABLE, nasty])
    sick.ClearField("observed_age_s")
    lines = drawn(table_of([sick]))
    assert lines[1].split()[-2:] == ["never", "2"]
    assert lines[3:5] == [
        "gpu-1 (10.0.0.1:8080): unreachable: nobody listens",
        "  -> start it",
    ]
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize("source", ["setting", "guess"])
def test_a_shared_context_stands_below(source: str) -> None:
    """How full it is; and what would settle it where it is only guessed that it is shared."""
    tokens = pb.Tokens(total=8192, held=1000, reserved=2500, free=5436, source=source)
    lines = drawn(table_of([endpoint(tokens=tokens), endpoint(name="gpu-2")]), width=400)
    (line,) = [line for line in lines if "8192" in line]
    assert line.startswith("gpu-1 (10.0.0.1:8080): ")
    assert "a context of 8192 tokens: 1000 held, 2500 reserved, 5436 free" in line
    assert ("may share" in line and "per_slot" in line) is (source == "guess")


@pytest.mark.parametrize("endpoints", [[], [endpoint()]])
def test_what_the_picker_cannot_read_stands_below(endpoints: list[pb.Endpoint]) -> None:
    lines = drawn(table_of(endpoints, problems=["\x1bfleet.yaml cannot be read: no such file"]))
    assert lines[-2].strip() == "" and "fleet.yaml cannot be read: no such file" in lines[-1]
    assert "\x1b" not in lines[-1]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "ready"),
        ({"intent": pb.INTENT_DRAINING}, "ready draining"),
        ({"intent": pb.INTENT_DISABLED, "health": pb.HEALTH_DOWN}, "down disabled"),
        ({"is_removed": True, "intent": pb.INTENT_DRAINING}, "ready leaving"),
        ({"is_fresh": False}, "ready stale"),
        ({"is_fresh": False, "is_pickable": False, "health": pb.HEALTH_LOADING}, "loading"),
        ({"is_known_to_envoy": False}, "ready unknown-to-envoy"),
    ],
)
def test_state_says_what_keeps_requests_away(changes: dict[str, object], shown: str) -> None:
    """Health first, then the operator's word or the age, then Envoy."""
    assert state(endpoint(**changes)).plain == shown


def test_models_are_few_and_short() -> None:
    """The loaded ones where there are some, two of them, without their folders."""

    def named(*names: str, loaded: tuple[str, ...] = ()) -> pb.Endpoint:
        return endpoint(models=[pb.Model(name=name, is_loaded=name in loaded) for name in names])

    assert models(named("a", "org/b", "c", "d")) == "a, b +2"
    assert models(named("a", "b", loaded=("b",))) == "b"
    assert models(named()) == ""


def test_a_narrow_screen_shortens_models_first() -> None:
    """Numbers stay whole."""
    long = endpoint(models=[pb.Model(name="x" * 60, is_loaded=True)])
    _, row = drawn(table_of([long]), width=80)
    assert "ready" in row and "0.4s" in row and "…" in row
    assert row.split()[3:7] == ["4", "3", "1", "8"]


def test_a_drained_endpoint_says_for_how_long() -> None:
    """And what ends it; one that is leaving needs no word."""
    drained = endpoint(intent=pb.INTENT_DRAINING, intent_age_s=185.0)
    draining = endpoint(intent=pb.INTENT_DRAINING, intent_age_s=5.0, leases=2, name="")
    disabled = endpoint(intent=pb.INTENT_DISABLED, intent_age_s=5.0)
    leaving = endpoint(intent=pb.INTENT_DRAINING, intent_age_s=5.0, is_removed=True)
    lines = drawn(table_of([drained, draining, disabled, leaving]))
    assert lines[-3:] == [
        "gpu-1 (10.0.0.1:8080): drained for 3m05s; `coxswain endpoints activate gpu-1` ends it",
        (
            "10.0.0.1:8080: draining for 5.0s, 2 still running; "
            "`coxswain endpoints activate 10.0.0.1:8080` ends it"
        ),
        "gpu-1 (10.0.0.1:8080): disabled for 5.0s; `coxswain endpoints activate gpu-1` ends it",
    ]
