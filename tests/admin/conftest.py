"""A picker that every test of the admin API talks to over loopback gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.picker import FakePicker, running_picker


@pytest.fixture
async def picker() -> AsyncIterator[FakePicker]:
    async with running_picker() as running:
        yield running
