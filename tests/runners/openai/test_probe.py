"""Claims about extproc/runners/openai/probe.py."""

from __future__ import annotations

import pytest

from extproc.core.observation import MAX_ENTRIES, ScrapeStatus
from extproc.runners.answers import MAX_VALUES
from extproc.runners.kind import RunnerKind
from tests.fakes.foreign_server import be_llama_swap, be_openai
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.runners.kit import scrape

KIND = RunnerKind.OPENAI


async def test_it_lists_its_models_and_shows_nothing_else() -> None:
    async with FakeLlamaServer() as fake:
        be_openai(fake, ["a", "b", "a"])
        observation = await scrape(fake, KIND, slots=3)
    assert observation.status is ScrapeStatus.READY
    assert [one.name for one in observation.models] == ["a", "b"]
    assert (observation.slots, observation.busy_slots) == (None, None)
    assert not observation.has_model_pools
    assert observation.runner == "openai"


async def test_llama_swaps_aliases_are_names_of_its_models() -> None:
    """At most as many as models may be."""
    async with FakeLlamaServer() as fake:
        be_llama_swap(fake, a=["alpha", "", "a", "alpha"], b=[], c=["gamma"])
        observation = await scrape(fake, KIND)
        names = [f"other-{number}" for number in range(MAX_ENTRIES)]
        be_llama_swap(fake, a=["alpha"], b=names, c=["gamma"])
        many = await scrape(fake, KIND)
    assert [(one.name, one.aliases) for one in observation.models] == [
        ("a", ("alpha",)),
        ("b", ()),
        ("c", ("gamma",)),
    ]
    assert [len(one.aliases) for one in many.models] == [1, MAX_ENTRIES - 1, 0]


@pytest.mark.parametrize("meta", [None, 1, {"llamaswap": []}, {"llamaswap": {"aliases": "a"}}])
async def test_what_shows_no_aliases_has_none(meta: object) -> None:
    async with FakeLlamaServer() as fake:
        be_openai(fake, ["a"], meta=meta)
        observation = await scrape(fake, KIND)
    assert [(one.name, one.aliases) for one in observation.models] == [("a", ())]


@pytest.mark.parametrize("status", [401, 403])
async def test_one_that_wants_a_key_serves_and_says_so(status: int) -> None:
    async with FakeLlamaServer() as fake:
        fake.replies["/v1/models"] = Reply(status=status)
        observation = await scrape(fake, KIND)
    assert observation.status is ScrapeStatus.READY
    assert [issue.code for issue in observation.issues] == ["unauthorized"]


@pytest.mark.parametrize(
    ("status", "sends_key", "expected"),
    [
        (401, True, ScrapeStatus.FAILED),
        (401, False, ScrapeStatus.READY),  # requests have keys of their clients
        (403, True, ScrapeStatus.READY),  # the key may serve for other paths
    ],
)
async def test_one_that_rejects_the_key_of_requests_serves_none(
    status: int, sends_key: bool, expected: ScrapeStatus
) -> None:
    async with FakeLlamaServer() as fake:
        fake.replies["/v1/models"] = Reply(status=status)
        observation = await scrape(fake, KIND, api_key="k", sends_key=sends_key)
    assert observation.status is expected
    assert [issue.code for issue in observation.issues] == ["unauthorized"]
    assert "rejects the API key" in observation.issues[0].message


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(status=503), ScrapeStatus.LOADING),
        (Reply(status=404), ScrapeStatus.FAILED),
        (Reply(body=b"<html>"), ScrapeStatus.FAILED),
        (Reply(body=b'{"data": 1}'), ScrapeStatus.FAILED),
        (Reply(body=b'{"data": [' + b"1," * MAX_VALUES + b"1]}"), ScrapeStatus.FAILED),
    ],
)
async def test_what_lists_no_models_is_none(reply: Reply, status: ScrapeStatus) -> None:
    async with FakeLlamaServer() as fake:
        fake.replies["/v1/models"] = reply
        assert (await scrape(fake, KIND)).status is status
