"""Claims about extproc/processes/member.py; what it does is shown in tests/e2e."""

from __future__ import annotations

import asyncio

from extproc.core.processes import TakeoverReason
from extproc.processes.member import Member, Role


async def test_why_another_core_takes_over() -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    crashed = Member(Role.CORE, "core-1", process)
    assert crashed.takeover_reason() is TakeoverReason.ENDED
    asked = Member(Role.CORE, "core-1", process)
    asked.is_leaving = True
    assert asked.takeover_reason() is TakeoverReason.LEFT
    asked.is_hung = True
    assert asked.takeover_reason() is TakeoverReason.HUNG, "it was asked, and did nothing"
