"""Fixtures of the end-to-end tests: real Envoy, real llama-servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extproc.demo.llama_server import find_llama_server
from tests.e2e.stack import Stack

QUICK = {"scraper": {"slow_interval_s": 0.5}}


@pytest.fixture
def llama() -> None:
    """Skip, and say so, where no llama-server could be built."""
    if find_llama_server() is None:
        pytest.skip("no llama-server: run `make test` where a C++ compiler is installed")


@pytest.fixture(params=["discovery", "gateway"])
def mode(request: pytest.FixtureRequest) -> str:
    """How Envoy asks: by its own cheapest configuration, and as gateways do."""
    return str(request.param)


@pytest.fixture
async def stack(llama: None, mode: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """Two real llama-servers with 2 and 4 slots behind Envoy and the picker."""
    async with Stack.running(tmp_path, settings=QUICK, mode=mode) as running:
        yield running


@pytest.fixture
async def stack_without_line(llama: None, mode: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """The same, and nobody may wait."""
    settings = {**QUICK, "queue": {"max_requests": 0}}
    async with Stack.running(tmp_path, settings=settings, mode=mode) as running:
        yield running
