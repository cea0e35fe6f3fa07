from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from extproc.demo import build_step
from extproc.demo.build_step import StepError, run_step


def run(tmp_path: Path, code: str, out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    command = [sys.executable, "-c", code]
    run_step("rigging", command, log=tmp_path / "log", out=out, remedy="buy rope")
    return out.getvalue()


def test_a_step_that_ends_well_says_so_and_keeps_its_output_in_the_log(tmp_path: Path) -> None:
    assert run(tmp_path, "print('knots')").startswith("rigging: done in ")
    assert "knots" in (tmp_path / "log").read_text(encoding="utf-8")


def test_a_step_that_fails_shows_its_own_last_lines_and_a_remedy(tmp_path: Path) -> None:
    run(tmp_path, "print('of the step before')")
    with pytest.raises(StepError, match=r"rigging failed \(exit status 4\); buy rope") as caught:
        run(tmp_path, "print('torn'); raise SystemExit(4)")
    assert caught.value.tail == "torn"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_progress_counts_what_ninja_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO]
) -> None:
    monkeypatch.setattr(build_step, "PLAIN_LINE_EVERY_S", 0.0)
    monkeypatch.setattr(build_step, "POLL_S", 0.02)
    shown = tmp_path / "shown"
    out = kind()
    # The step ends once its progress was seen, so that nothing here depends on speed.
    code = (
        "import time, pathlib\n"
        "print('[1/8] a\\n[2/8] b', flush=True)\n"
        f"while not pathlib.Path({str(shown)!r}).exists(): time.sleep(0.01)"
    )
    write = out.write

    def watched(text: str) -> int:
        if "25 % [2/8]" in text:
            shown.touch()
        return write(text)

    monkeypatch.setattr(out, "write", watched)
    lines = run(tmp_path, code, out).split("\r" if kind is Terminal else "\n")
    assert any(line.startswith("rigging: ") and "25 % [2/8]" in line for line in lines)
