"""gRPC's poller is scheduled so that it interrupts nobody, and only the poller is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

REPORT = """
import asyncio, os, threading
from extproc.app.poller import start_poller

async def main():
    start_poller()
    for thread in threading.enumerate():
        kind = "main" if thread is threading.main_thread() else "other"
        print(kind, os.sched_getscheduler(thread.native_id))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has batch scheduling")
def test_only_the_poller_yields() -> None:
    out = subprocess.run(
        [sys.executable, "-c", REPORT], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    usual = os.sched_getscheduler(0)  # another one where somebody runs the tests at idle priority
    assert sorted(out.splitlines()) == [f"main {usual}", f"other {os.SCHED_BATCH}"]
