"""Claims about extproc/processes/fronts/progress.py."""

from __future__ import annotations

from extproc.processes.fronts.progress import STEPS, Progress


def test_progress_is_reported_now_and_then() -> None:
    progress, reports = Progress(), []
    for _ in range(STEPS):
        progress.step()
    progress.on_progress = lambda: reports.append(1)
    for _ in range(3 * STEPS + 1):
        progress.step()
    assert len(reports) == 3
