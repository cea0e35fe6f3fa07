"""Claims about extproc/core/spill.py."""

from __future__ import annotations

import pytest

from extproc.core.objective import Objective
from extproc.core.spill import NO_SPILL, SpillOptions

CHAT = Objective(name="chat", ttft_s=8.0)
BATCH = Objective(name="batch", queue_s=20.0, ttft_s=8.0)


@pytest.mark.parametrize(
    ("objectives", "keys", "objective", "tenant", "permitted"),
    [
        ((), (), "chat", "client-web", False),
        (("chat",), (), "chat", "", True),
        (("chat",), (), "", "", False),
        (("chat",), (), "batch", "client-chat", False),
        ((), ("web",), "", "client-web", True),
        ((), ("web",), "web", "", False),
        ((), ("web",), "web", "web", False),  # a key that nobody checked
        ((), ("web",), "web", "client-webs", False),
        (("chat",), ("web",), "chat", "client-web", True),
        (("chat",), ("web",), "chat", "client-other", False),
        (("chat",), ("web",), "", "client-web", False),
    ],
)
def test_only_what_is_named_may_spill(
    objectives: tuple[str, ...],
    keys: tuple[str, ...],
    objective: str,
    tenant: str,
    permitted: bool,
) -> None:
    options = SpillOptions(objectives=frozenset(objectives), keys=frozenset(keys))
    assert options.permits(Objective(name=objective), tenant) is permitted


def test_nothing_spills_by_default() -> None:
    assert not NO_SPILL.permits(Objective(), "")
    assert not NO_SPILL.permits(CHAT, "client-web")


@pytest.mark.parametrize(
    ("objective", "share", "wait_s"),
    [
        (Objective(), 0.5, 3.0),
        (CHAT, None, 3.0),
        (CHAT, 0.5, 4.0),
        (BATCH, 0.5, 10.0),
    ],
)
def test_the_bound_is_a_time_or_a_share_of_the_slo(
    objective: Objective, share: float | None, wait_s: float
) -> None:
    options = SpillOptions(after_wait_s=3.0, slo_share=share)
    assert options.longest_wait_s(objective) == wait_s
