"""Claims about extproc/cli/screens/request_table.py: what an operator reads of the requests."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from extproc.cli.screens import request_table
from extproc.cli.screens.request_table import EQUAL, position_line, table_of
from extproc.pb.coxswain.v1 import admin_pb2 as pb

RUNNING = pb.Request(
    exchange_id="e1",
    request_id="r1",
    state=pb.REQUEST_STATE_RESPONDING,
    endpoint="10.0.0.1:8080",
    model="tiny",
    criticality="critical",
    age_s=12.0,
    waited_s=0.5,
)
WAITING = pb.Request(
    exchange_id="e2",
    request_id="r2",
    state=pb.REQUEST_STATE_QUEUED,
    criticality="standard",
    age_s=3.0,
    waited_s=3.0,
    queue_position=1,
    queued=2,
    expected_s=4.0,
)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_table, "console", lambda: Console(width=150))


def words(line: str) -> str:
    """What stands in its columns, however wide they are."""
    return " ".join(line.split())


def drawn(
    *requests: pb.Request, matching: int | None = None, width_columns: int = 150
) -> list[str]:
    screen = Console(file=StringIO(), width=width_columns)
    answer = pb.ListRequestsResponse(
        requests=requests,
        total_running=1,
        total_queued=1,
        total=len(requests) if matching is None else matching,
    )
    screen.print(table_of(answer))
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue().splitlines()


def test_all_that_is_known_of_each() -> None:
    """Ids, state, place, endpoint, model, criticality, age, wait and what is expected."""
    header, running, waiting, _, total = drawn(RUNNING, WAITING)
    assert (
        words(header)
        == "REQUEST EXCHANGE STATE POSITION ENDPOINT MODEL CRITICALITY AGE WAITED EXPECTED"
    )
    assert words(running) == "r1 e1 responding 10.0.0.1:8080 tiny critical 12s 0.5s"
    assert words(waiting) == "r2 e2 queued 1 of 2 standard 3.0s 3.0s 4.0s"
    assert total == "1 running, 1 queued"


def test_equal_positions_are_explained_where_there_are_any() -> None:
    other = pb.Request()
    other.CopyFrom(WAITING)
    other.exchange_id = "e3"
    assert EQUAL.split()[0] in " ".join(drawn(WAITING, other))
    assert EQUAL.split()[0] not in " ".join(drawn(RUNNING, WAITING))


def test_the_load_that_a_request_waits_for_is_why() -> None:
    """In words, instead of the reason's name; a watch says it, too."""
    note = "waits for qwen to be loaded at gpu-1, about 12 s"
    waiting = pb.Request()
    waiting.CopyFrom(WAITING)
    waiting.wait_reason = "model-loading"
    assert "model-loading" in "".join(drawn(waiting))
    waiting.note = note
    text = " ".join(" ".join(drawn(waiting)).split())
    assert "WHY" in text and "model-loading" not in text
    assert all(word in text for word in note.split())
    position = pb.WatchQueueResponse(
        state=pb.WatchQueueResponse.STATE_QUEUED, queue_position=1, queued=2, note=note
    )
    assert position_line(position).endswith(f"; {note}")


def test_columns_without_content_are_left_out() -> None:
    """No model was read, and all are of the ordinary class."""
    (header, *_) = drawn(WAITING)
    assert "MODEL" not in header and "CRITICALITY" not in header


def test_a_narrow_screen_does_without_the_clients_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exchange's id is shorter, and every command takes it."""
    monkeypatch.setattr(request_table, "console", lambda: Console(width=100))
    (header, row, *_) = drawn(RUNNING)
    assert "REQUEST" not in header and row.split()[0] == "e1"


def test_eighty_columns_break_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoints of running requests stand in one column with why the others wait."""
    monkeypatch.setattr(request_table, "console", lambda: Console(width=80))
    ids = ["7baef40678c92f80", "912e4ba85e4dae45"]
    running, waiting = pb.Request(), pb.Request()
    running.CopyFrom(RUNNING)
    waiting.CopyFrom(WAITING)
    running.exchange_id, waiting.exchange_id = ids
    running.client = waiting.client = "team-a"
    running.criticality = "standard"
    waiting.wait_reason = "too-few-tokens"
    header, *rows = drawn(running, waiting, width_columns=80)
    title = "EXCHANGE STATE POSITION ENDPOINT, WHY CLIENT AGE WAITED EXPECTED"
    assert words(header) == title
    assert words(rows[0]) == f"{ids[0]} responding 10.0.0.1:8080 team-a 12s 0.5s"
    assert words(rows[1]) == f"{ids[1]} queued 1 of 2 too-few-tokens team-a 3.0s 3.0s 4.0s"


def test_a_list_that_was_cut_says_so() -> None:
    """With the option that shows more; and none at all is just the sums."""
    assert drawn(RUNNING, matching=7)[-1].endswith("1 of 7 are shown (--limit)")
    assert drawn() == ["1 running, 1 queued"]


def test_clients_cannot_write_on_the_terminal() -> None:
    """They name their requests and models themselves."""
    nasty = pb.Request(exchange_id="e", request_id="\x1b[2J", model="\x1b]0;x\x07", age_s=1.0)
    assert not any("\x1b" in line or "\x07" in line for line in drawn(nasty))
