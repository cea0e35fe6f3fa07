"""More work than slots, over real Envoy: nobody is forgotten, and no slot is lost, however its
client leaves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rigs.chaos import overload, report
from rigs.chaos.records import RECORDS
from rigs.leaving import WAYS, Way


@pytest.mark.e2e
@pytest.mark.timeout(300)
async def test_overload_costs_no_slot_and_forgets_no_client(tmp_path: Path) -> None:
    verdict = await overload.attack(tmp_path, overload.SHORT, 1, print)
    assert not verdict.findings, "\n".join(report.lines(verdict))
    assert verdict.counts["served"] and verdict.counts["rejected: queue-timeout"]
    records = map(json.loads, (tmp_path / RECORDS).read_text().splitlines())
    left = {one["kind"] for one in records if one["record"] == "calls" and one["has_left"]}
    assert left == {f"storm ({way.value})" for way in (Way if shutil.which("node") else WAYS)}
