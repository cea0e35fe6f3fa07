"""What a test's own log is, where gRPC is at work."""

from __future__ import annotations

from logging import LogRecord

import pytest


def logged(caplog: pytest.LogCaptureFixture) -> list[LogRecord]:
    """What was logged, but for what gRPC left of an earlier test. One queue serves all of
    grpc.aio's event loops in a process, so asyncio may tell of an ended one during a later test."""
    return [one for one in caplog.records if "PollerCompletionQueue" not in one.getMessage()]
