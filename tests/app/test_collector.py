"""Claims about extproc/app/collector.py."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from extproc.app.collector import YOUNG, settle

searches = []
settle()
assert gc.get_freeze_count() > 0
gc.callbacks.append(lambda phase, info: searches.append((phase, info["generation"])))
kept = [[each] for each in range(YOUNG // 2)]
assert searches == [], searches
kept += [[each] for each in range(YOUNG)]
assert searches == [("start", 0), ("stop", 0)], searches
"""


def test_what_is_loaded_is_not_searched_again_and_small_growth_begins_no_search() -> None:
    """In a process of its own: what other tests have left would be kept for ever."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
