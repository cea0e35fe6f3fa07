"""Claims about extproc/cli/screens/top_screen.py: what fits, and what is left out."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from extproc.cli.screens.top_data import TopData
from extproc.cli.screens.top_screen import screen_of
from extproc.cli.screens.top_tables import Frame
from extproc.pb.coxswain.v1 import admin_pb2 as pb

LOAD = {"leased": 3, "foreign": 1, "idle": 12, "total": 16}


def data(endpoints: int, running: int, queued: int, issues: int = 0) -> TopData:
    """So many of each; the first endpoints have an issue each."""
    return TopData(
        status=pb.GetStatusResponse(
            version="1.2.3", running=running, queue=pb.GetStatusResponse.Queue(queued=queued)
        ),
        endpoints=[
            pb.Endpoint(
                address=f"10.0.0.{number}:8080",
                name=f"machine-{number}",
                health=pb.HEALTH_DEGRADED,
                intent=pb.INTENT_DRAINING,
                slots=pb.Slots(**LOAD),
                models=[pb.Model(name="llama-3.3-70b-instruct-q4", is_loaded=True)],
                issues=[pb.Issue(code="slow", message="s" * 90, remedy="r")] * (number < issues),
                observed_age_s=1.0,
            )
            for number in range(endpoints)
        ],
        running=[request(number, pb.REQUEST_STATE_RUNNING) for number in range(min(50, running))],
        queued=[request(number, pb.REQUEST_STATE_QUEUED) for number in range(min(50, queued))],
    )


def request(number: int, state: pb.RequestState) -> pb.Request:
    is_queued = state == pb.REQUEST_STATE_QUEUED
    return pb.Request(
        exchange_id=f"{state:08d}{number:08d}",
        state=state,
        endpoint="" if is_queued else "10.0.0.0:8080",
        criticality="standard",
        age_s=100.0,
        queue_position=number + 1 if is_queued else 0,
    )


def lines(
    seen: TopData, *, width: int = 80, height: int | None = None, notice: str = ""
) -> list[str]:
    screen = Console(file=StringIO(), width=width, height=1000)
    frame = Frame(address="127.0.0.1:9003", width=width, height_lines=height)
    screen.print(screen_of(seen, frame, "12:00:00", notice))
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue().splitlines()


@pytest.mark.parametrize("height", [16, 24, 40, 100])
@pytest.mark.parametrize("endpoints", [0, 1, 5, 60])
@pytest.mark.parametrize(("running", "queued"), [(0, 0), (1, 0), (0, 9), (80, 3), (400, 400)])
@pytest.mark.parametrize("issues", [0, 1, 60])
def test_the_picture_fits_the_screen(
    height: int, endpoints: int, running: int, queued: int, issues: int
) -> None:
    """Whatever there is to show; and something of each kind is always on it."""
    shown = lines(data(endpoints, running, queued, issues), height=height)
    assert len(shown) <= height
    assert max(map(len, shown)) <= 80
    text = "\n".join(shown)
    if endpoints:
        assert "machine-0" in text
    if height >= 24:
        assert ("queued 1" in text) == (queued > 0)
        assert f"{pb.REQUEST_STATE_RUNNING:08d}00000000" in text or not running


def test_no_line_of_the_screen_is_wasted() -> None:
    """With more of everything than fits, the screen is full but for what the headings keep."""
    assert len(lines(data(100, 100, 100), height=50)) >= 47


def test_what_is_left_out_is_counted() -> None:
    """The numbers of the status count, not how many the list had."""
    text = "\n".join(lines(data(60, 400, 400, issues=60), height=24))
    running, queued = (text.count(f"\n{state:08d}") for state in (2, 1))
    assert f"and {400 - running} more running, {400 - queued} more queued" in text
    assert "! and 58 more;" in text and text.count("\n! machine-") == 2
    listed = text.count("\nmachine-")
    assert f"and {60 - listed} more endpoints" in text


def test_numbers_stay_whole_where_it_is_narrow() -> None:
    """Models are shortened first, numbers never."""
    (row,) = [line for line in lines(data(1, 0, 0)) if line.startswith("machine-0")]
    for part in ("degraded draining…", "██▒·········", "4/16", "llama-3.3"):
        assert part in row
    assert row.rstrip().endswith("1.0s")


def test_what_others_wrote_moves_no_cursor() -> None:
    """Escape sequences and turned text in names and ids are shown as what they are: nothing."""
    seen = data(1, 1, 0)
    evil = "\x1b[2J\x9b31m\u202egpu\r\n"
    seen.endpoints[0].name = seen.endpoints[0].issues.add(code=evil, message=evil).code
    seen.endpoints[0].models[0].name = evil
    seen.running[0].model = seen.running[0].criticality = evil
    seen.status.version = evil
    seen.status.not_ready.append(evil)
    seen.status.outcomes[evil] = 3
    text = "\n".join(lines(seen, width=160))
    assert not set("\x1b\x9b\u202e\r") & set(text) and "gpu" in text


def test_what_is_wrong_stands_on_top() -> None:
    """A picker that is not ready says why; one that does not answer takes that place."""
    seen = data(1, 0, 0)
    seen.status.not_ready.append("no endpoint can get requests")
    assert "not ready: no endpoint can get requests" in lines(seen, width=120)[0]
    seen.status.is_ready = True
    assert lines(seen)[0].rstrip().endswith("12:00:00") and "ready" in lines(seen)[0]
    assert lines(seen, notice="no answer")[0].startswith("no answer")
