"""Fixtures of the end-to-end tests: real Envoy, real llama-servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from extproc.demo.llama_server import find_llama_server
from tests.e2e.pool import StackPool
from tests.e2e.stack import Stack
from tests.fakes.kubernetes import Kubernetes
from tests.scheduling import group_of

QUICK = {"scraper": {"slow_interval_s": 0.5}}
POOL = pytest.StashKey[StackPool]()
LIMIT_BYTES = 20_000
"""How much of a body the picker reads before `one_simulator`."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that borrow the same stack run one after another, and so it is booted once."""
    first: dict[str, int] = {}
    order = {
        item: first.setdefault(group_of(item.nodeid), number) for number, item in enumerate(items)
    }
    items.sort(key=order.__getitem__)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nobody borrows the stacks of a group after its last test."""
    if pool := item.config.stash.get(POOL, None):
        following = nextitem and group_of(nextitem.nodeid)
        pool.is_last_loan = following != group_of(item.nodeid)


@pytest.fixture
def llama() -> None:
    """Skip, and say so, where no llama-server could be built."""
    if find_llama_server() is None:
        pytest.skip("no llama-server: run `make test` where a C++ compiler is installed")


@pytest.fixture(params=["discovery", "gateway"])
def mode(request: pytest.FixtureRequest) -> str:
    """How Envoy asks: by its own cheapest configuration, and as gateways do."""
    return str(request.param)


@pytest.fixture(params=["auto", "never"])
def read_body(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stacks(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> AsyncIterator[StackPool]:
    """The stacks that tests borrow."""
    pool = pytestconfig.stash[POOL] = StackPool(tmp_path_factory.mktemp("stacks"))
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="session")
async def stack(llama: None, mode: str, stacks: StackPool) -> AsyncIterator[Stack]:
    """Two real llama-servers with 2 and 4 slots behind Envoy and the picker, borrowed."""
    async with stacks.lend(settings=QUICK, mode=mode) as lent:
        yield lent


@pytest_asyncio.fixture(loop_scope="session")
async def one_simulator(mode: str, read_body: str, stacks: StackPool) -> AsyncIterator[Stack]:
    """One simulated server with one slot, borrowed; little of a body is read, or none."""
    routing = {"read_body": read_body, "body_limit_bytes": LIMIT_BYTES}
    settings = {**QUICK, "routing": routing}
    async with stacks.lend(slots=(1,), kind="simulator", settings=settings, mode=mode) as lent:
        yield lent


@pytest.fixture
async def own_stack(llama: None, mode: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """The same, for a test that leaves nothing as it was."""
    async with Stack.running(tmp_path, settings=QUICK, mode=mode) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubernetes]:
    """One API server for all tests that share it."""
    async with Kubernetes(tmp_path_factory.mktemp("api")) as running:
        yield running
