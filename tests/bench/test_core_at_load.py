"""Claims about bench/core_at_load.py."""

import pytest

from bench import core_at_load
from bench.rig import Rig

pytestmark = pytest.mark.e2e


async def test_a_real_core_serves_what_is_ready_made_and_counts_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_at_load, "ROUNDS", 1)
    monkeypatch.setattr(core_at_load, "ROUND_S", 1.0)
    async with Rig() as rig:
        [server] = await rig.start_stand_ins(1, core_at_load.SLOTS)
        rows = await core_at_load.measure_core(rig, server, lambda _: None)
    found = {row.what: row for row in rows}
    assert float(found["exchanges/s of a core that is kept busy"].value) > 0
    assert found["its failed exchanges"].is_met
    assert found["its exchanges that it did not count"].is_met
