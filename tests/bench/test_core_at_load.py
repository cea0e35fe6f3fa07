"""Claims about bench/core_at_load.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import core_at_load, rig
from extproc.demo.process import Children

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


async def test_a_real_core_serves_what_is_ready_made_and_counts_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_at_load, "ROUNDS", 1)
    monkeypatch.setattr(core_at_load, "ROUND_S", 0.2)
    async with Children(tmp_path) as children:
        [server] = await rig.start_stand_ins(children, tmp_path, 1, core_at_load.SLOTS)
        rows = await core_at_load.measure_core(tmp_path, server, lambda _: None)
    found = {row.what: row for row in rows}
    assert float(found["exchanges/s of a core that is kept busy"].value) > 0
    assert found["its failed exchanges"].is_met
    assert found["its exchanges that it did not count"].is_met
