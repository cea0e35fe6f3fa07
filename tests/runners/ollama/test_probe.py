"""Claims about extproc/runners/ollama/probe.py, with answers of a real Ollama."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from extproc.core.observation import ModelState, ScrapeStatus
from extproc.runners.kind import RunnerKind
from extproc.runners.ollama.probe import SERIAL_FAMILIES
from tests.fakes.foreign_server import be_ollama, running, tag
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.runners.kit import scrape

KIND = RunnerKind.OLLAMA


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlamaServer]:
    async with FakeLlamaServer() as server:
        be_ollama(server, [tag("tiny:latest"), tag("big:8b")], [running("tiny:latest")])
        yield server


async def test_models_are_named_with_and_without_the_tag_that_is_meant_by_none(
    fake: FakeLlamaServer,
) -> None:
    observation = await scrape(fake, KIND)
    assert observation.status is ScrapeStatus.READY
    assert [(one.name, one.aliases) for one in observation.models] == [
        ("tiny:latest", ("tiny",)),
        ("big:8b", ()),
    ]


async def test_what_is_loaded_has_slots_and_the_rest_waits_for_its_load(
    fake: FakeLlamaServer,
) -> None:
    """As the setting says, which is OLLAMA_NUM_PARALLEL: one if it is not set."""
    for slots, expected in ((None, 1), (4, 4)):
        observation = await scrape(fake, KIND, slots)
        loaded, other = observation.models
        assert (loaded.is_loaded, loaded.slots, loaded.state) == (True, expected, ModelState.LOADED)
        assert (other.is_loaded, other.slots, other.state) == (False, None, ModelState.UNLOADED)
        assert observation.slots == expected
        assert observation.has_model_pools


async def test_nothing_is_said_of_what_it_does_not_show(fake: FakeLlamaServer) -> None:
    observation = await scrape(fake, KIND)
    assert observation.busy_slots is None
    assert [one.busy_slots for one in observation.models] == [None, None]
    assert observation.slot_readings == ()
    assert observation.shared_tokens == 0
    assert (observation.runner, observation.apis) == ("ollama", frozenset({"ollama"}))


@pytest.mark.parametrize("family", sorted(SERIAL_FAMILIES))
async def test_some_families_serve_one_request_at_a_time(
    fake: FakeLlamaServer, family: str
) -> None:
    be_ollama(fake, [tag("m:1", family)], [running("m:1", family)])
    assert (await scrape(fake, KIND, 4)).models[0].slots == 1


@pytest.mark.parametrize("path", ["/api/tags", "/api/ps"])
@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(status=503), ScrapeStatus.LOADING),
        (Reply(status=500), ScrapeStatus.FAILED),
        (Reply(body=b"[]"), ScrapeStatus.FAILED),
        (Reply(body=b'{"models": {}}'), ScrapeStatus.FAILED),
        (Reply(body=b"\xff"), ScrapeStatus.FAILED),
    ],
)
async def test_an_odd_answer_is_no_fleet_without_models(
    fake: FakeLlamaServer, path: str, reply: Reply, status: ScrapeStatus
) -> None:
    fake.replies[path] = replace(reply)
    observation = await scrape(fake, KIND)
    assert (observation.status, observation.models) == (status, ())


async def test_a_null_list_is_none_and_odd_entries_are_left_out(fake: FakeLlamaServer) -> None:
    fake.replies["/api/tags"] = Reply.of({"models": [1, {"name": 2}, {"name": "a\nb"}, tag("x:1")]})
    assert [one.name for one in (await scrape(fake, KIND)).models] == ["x:1", "tiny:latest"]
