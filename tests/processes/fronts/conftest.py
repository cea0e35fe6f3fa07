"""Each test ends its links."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.fakes.fronts import close_links


@pytest_asyncio.fixture(autouse=True)
async def _no_links_are_left() -> AsyncIterator[None]:
    yield
    await close_links()
