"""More work than slots, over real Envoy: nobody is forgotten, and no slot is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigs.chaos import overload, report


@pytest.mark.e2e
@pytest.mark.timeout(300)
async def test_overload_costs_no_slot_and_forgets_no_client(tmp_path: Path) -> None:
    verdict = await overload.attack(tmp_path, overload.SHORT, 1, print)
    assert not verdict.findings, "\n".join(report.lines(verdict))
    assert verdict.counts["served"] and verdict.counts["rejected: queue-timeout"]
