"""Claims about extproc/xds/gate.py."""

from __future__ import annotations

import asyncio

from extproc.xds.gate import Gate


async def test_it_opens_for_who_waited_long_enough() -> None:
    gate, opened = Gate(hold_s=0.01), asyncio.Event()
    gate.on_open.append(opened.set)
    gate.wait()
    assert not gate.is_open
    async with asyncio.timeout(10):
        await opened.wait()
    assert gate.is_open


async def test_it_is_opened_once_however_often_that_is_said() -> None:
    gate = Gate(hold_s=3600)
    told: list[str] = []
    gate.on_open.append(lambda: told.append("open"))
    gate.wait()
    gate.open()
    gate.open()
    gate.wait()
    assert gate.is_open
    assert told == ["open"]
