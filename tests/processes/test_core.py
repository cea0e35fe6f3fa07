"""Claims about extproc/processes/core.py: in a cluster a core decides only with lease_grant."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from extproc.processes.child import ALIVE_S, Identity
from extproc.processes.control import channel
from extproc.processes.core import Core
from extproc.processes.fronts.progress import STEPS
from extproc.settings import Settings
from tests.fakes.envoy_stream import eventually

CLUSTER = {"name": "test", "valkey": ["redis://127.0.0.1:1"], "advertise": "127.0.0.1:9"}


def lease_grant(until: float) -> dict[str, Any]:
    return {"do": "permit", "lease_grant": {"until": until, "followed_until": 0.0, "fronts": []}}


@asynccontextmanager
async def core_with_a_front(settings: Settings) -> AsyncIterator[Core]:
    """A core to which the supervisor has said of a front, and nothing else yet."""
    ours, theirs = channel()
    core = Core(settings, lambda: settings, "", Identity("core-1", os.getpid(), theirs.detach()))
    end, front = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    core._hear({"do": "link", "front": "front-1"}, [end])
    await eventually(lambda: core._calls is not None)
    try:
        yield core
    finally:
        core._child._control.close()  # without a supervisor it would end this process
        core._calls_now().close()
        ours.close()
        front.close()


async def test_a_core_of_a_cluster_decides_nothing_before_it_is_permitted() -> None:
    """The order to lead may come later than the first front, as the supervisor sends them one by
    one."""
    settings = Settings.model_validate({"cluster": CLUSTER, "fronts": 1})
    async with core_with_a_front(settings) as core:
        calls = core._calls_now()
        assert not calls.may_decide()
        core._hear(lease_grant(time.monotonic() + 60.0), [])
        assert calls.may_decide()
        core._hear(lease_grant(time.monotonic() - 0.1), [])
        assert not calls.may_decide()


async def test_without_a_cluster_it_needs_no_permission() -> None:
    async with core_with_a_front(Settings.model_validate({"fronts": 1})) as core:
        assert core._calls_now().may_decide()


async def test_a_core_gives_signs_of_life_in_work_that_takes_long() -> None:
    """Thousands of streams may end at once: a supervisor that hears nothing would kill it."""
    async with core_with_a_front(Settings.model_validate({"fronts": 1})) as core:
        calls = core._calls_now()
        core._child._alive_at = time.monotonic() - ALIVE_S
        before = core._child._alive_at
        for _ in range(STEPS):
            calls.progress.step()
        assert core._child._alive_at > before
        last = core._child._alive_at
        core._child._alive_at = last = time.monotonic() + 60.0  # none is due
        for _ in range(STEPS):
            calls.progress.step()
        assert core._child._alive_at == last
