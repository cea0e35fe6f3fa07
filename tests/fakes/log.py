"""What a test's own log is, where gRPC is at work."""

from __future__ import annotations

from logging import LogRecord

import pytest


def logged(caplog: pytest.LogCaptureFixture) -> list[LogRecord]:
    """What was logged, but for asyncio's records. One queue serves all of grpc.aio's event loops
    in a process, so what is left of an earlier test's loop may be told by asyncio's logger during
    a later test."""
    return [record for record in caplog.records if record.name != "asyncio"]
