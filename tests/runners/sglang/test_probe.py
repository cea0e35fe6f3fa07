"""Claims about extproc/runners/sglang/probe.py."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.observation import ScrapeStatus
from extproc.runners.kind import RunnerKind
from extproc.runners.probe import ScrapePriority
from extproc.runners.sglang.probe import busy_of
from tests.fakes.foreign_server import be_sglang
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.runners.kit import probe_of, scrape

KIND = RunnerKind.SGLANG


async def test_its_schedulers_tell_their_slots_and_what_runs_and_waits() -> None:
    async with FakeLlamaServer() as fake:
        be_sglang(fake, (3, 1, 100), (2, 0, 990))
        observation = await scrape(fake, KIND)
    assert (observation.slots, observation.busy_slots) == (16, 6)
    assert observation.is_full is False, "one has room"
    assert [one.name for one in observation.models] == ["m"]
    assert (observation.context_tokens, observation.shared_tokens) == (4096, 0)
    assert (observation.runner, observation.apis) == (
        "sglang",
        frozenset({"sglang", "rerank", "score", "classify", "tokenize"}),
    )


@pytest.mark.parametrize(("used", "full"), [((949, 990), False), ((950, 951), True), ((0,), False)])
async def test_it_is_full_when_no_scheduler_has_room(used: tuple[int, ...], full: bool) -> None:
    async with FakeLlamaServer() as fake:
        be_sglang(fake, *((1, 0, tokens) for tokens in used))
        assert (await scrape(fake, KIND)).is_full is full


async def test_an_earlier_one_does_not_tell_its_slots() -> None:
    async with FakeLlamaServer() as fake:
        be_sglang(fake, (3, 1, 100), most=None)
        observation = await scrape(fake, KIND)
    assert (observation.slots, observation.busy_slots) == (None, 4)


@pytest.mark.parametrize(
    ("loads", "busy"),
    [
        ([], None),
        ([{}], None),
        ([{"num_running_reqs": 1}], None),
        ([{"num_running_reqs": 1, "num_waiting_reqs": "2"}], None),
        ([{"num_running_reqs": -1, "num_waiting_reqs": 0}], None),
        ([{"num_running_reqs": True, "num_waiting_reqs": 0}], None),
        ([{"num_running_reqs": 10**8, "num_waiting_reqs": 0}], 65_536),
    ],
)
def test_loads(loads: list[dict[str, Any]], busy: int | None) -> None:
    assert busy_of(loads) == busy


async def test_what_is_none_of_its_own_fails_the_scrape() -> None:
    async with FakeLlamaServer() as fake:
        be_sglang(fake, (0, 0, 0))
        probe = probe_of(fake, KIND)
        assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.READY
        fake.replies["/v1/loads"] = Reply(body=b'{"loads": 3}')
        assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.FAILED
        be_sglang(fake, (1, 0, 0))
        assert (await probe.scrape(ScrapePriority.IDLE)).busy_slots == 1
        await probe.aclose()
    assert fake.count("/v1/models") == 2, "another process may have another model"
