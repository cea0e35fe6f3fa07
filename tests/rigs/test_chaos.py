"""The short form of `make chaos`: everything fails over real Envoy, and every request adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.demo.llama_server import find_llama_server
from rigs.chaos import report
from rigs.chaos.__main__ import SHORT_S
from rigs.chaos.attack import attack
from rigs.chaos.script import draw_script


@pytest.mark.e2e
@pytest.mark.timeout(400)
async def test_each_request_is_accounted_for_while_everything_fails(tmp_path: Path) -> None:
    script = draw_script(1, SHORT_S, has_llama=find_llama_server() is not None)
    outcome = await attack(tmp_path, script, print)
    assert not outcome.verdict.findings, f"{script}\n" + "\n".join(report.lines(outcome.verdict))
    assert outcome.done.total() >= 5
    assert outcome.verdict.counts["served"] >= 100
