"""Claims about extproc/app/collector.py."""

from __future__ import annotations

import gc

from extproc.app.collector import YOUNG, settle


def test_what_is_loaded_is_not_searched_again_and_small_growth_begins_no_search() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    searches: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            searches.append(info["generation"])

    try:
        settle()
        assert gc.get_freeze_count() > frozen
        gc.callbacks.append(count)
        kept = [[each] for each in range(YOUNG // 2)]
        assert searches == []
        kept += [[each] for each in range(YOUNG)]
        assert searches == [0], "what was left in a cycle is still found"
    finally:
        if count in gc.callbacks:
            gc.callbacks.remove(count)
        gc.set_threshold(*before)
