"""Which tests stay together where several workers run them, and which of them come first.

pytest-xdist asks in the process that runs no tests, so a test is known by its id alone.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer

ROOT = Path(__file__).parents[1]
PARAMETERS = {"discovery", "gateway", "auto", "never"}
"""Those that a borrowed stack is made of."""
FLEET = re.compile(r'shares\("([^"]+)"\)')
ALONE = ("tests/properties/", "tests/bench/")
TOGETHER = "tests/envoy_config/"
"""What one of them has printed, the others read."""
FIRST = "tests/rigs/test_chaos.py"


def make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Hand out what stays together in the order in which it was collected."""
    config.option.loadscopereorder = False
    return _ByStack(config, log)


class _ByStack(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(test: str) -> str:
    """Those that borrow the same stack are one group, and so are those of `TOGETHER`, else a file
    is; what takes seconds for each test (end to end, properties, simulations) is a group of its
    own."""
    file = test.partition("::")[0]
    if file.startswith(TOGETHER):
        return TOGETHER
    fleet, is_e2e = _reported_by(file)
    if fleet:
        parameters = test.rpartition("[")[2].rstrip("]").split("-")
        return " ".join([fleet, *(one for one in parameters if one in PARAMETERS)])
    return test if is_e2e or file.startswith(ALONE) else file


def rank_of(test: str) -> int:
    """The longest of all is begun with; files of quick tests come last, to fill the rest."""
    file = test.partition("::")[0]
    fleet, is_e2e = _reported_by(file)
    if file == FIRST:
        return 0
    if fleet:
        return 1
    return 2 if is_e2e or file.startswith((*ALONE, TOGETHER)) else 3


@functools.cache
def _reported_by(file: str) -> tuple[str, bool]:
    text = (ROOT / file).read_text(encoding="utf-8")
    fleet = FLEET.search(text)
    return fleet[1] if fleet else "", "mark.e2e" in text
