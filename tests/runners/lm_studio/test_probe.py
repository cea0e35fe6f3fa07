"""Claims about extproc/runners/lm_studio/probe.py."""

from __future__ import annotations

import pytest

from extproc.core.observation import ModelState, ScrapeStatus
from extproc.runners.kind import RunnerKind
from tests.fakes.foreign_server import be_lm_studio
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.runners.kit import scrape

KIND = RunnerKind.LM_STUDIO


async def test_each_instance_has_slots_and_its_id_is_a_name() -> None:
    """As the setting says, and one without it."""
    async with FakeLlamaServer() as fake:
        be_lm_studio(fake, tiny=["tiny", "tiny:2"], big=[])
        for slots, expected in ((None, 2), (4, 8)):
            observation = await scrape(fake, KIND, slots)
            loaded, other = observation.models
            assert (loaded.name, loaded.aliases) == ("tiny", ("tiny:2",))
            assert (loaded.is_loaded, loaded.slots, loaded.state) == (
                True,
                expected,
                ModelState.LOADED,
            )
            assert (other.name, other.is_loaded, other.slots) == ("big", False, None)
            assert observation.slots == expected
            assert observation.has_model_pools
            assert observation.busy_slots is None, "it does not show it"
            assert observation.runner == "lm-studio"
            assert observation.apis == frozenset({"lm-studio"})


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(status=503), ScrapeStatus.LOADING),
        (Reply(status=500), ScrapeStatus.FAILED),
        (Reply.of({"error": "Unexpected endpoint or method."}), ScrapeStatus.FAILED),
        (Reply(body=b"\xff"), ScrapeStatus.FAILED),
    ],
)
async def test_an_odd_answer_is_no_fleet_without_models(reply: Reply, status: ScrapeStatus) -> None:
    async with FakeLlamaServer() as fake:
        be_lm_studio(fake, tiny=["tiny"])
        fake.replies["/api/v1/models"] = reply
        observation = await scrape(fake, KIND)
    assert (observation.status, observation.models) == (status, ())


async def test_odd_entries_are_left_out() -> None:
    odd = {"models": [1, {"key": 2}, {"key": "a", "loaded_instances": 3}, {"key": "a"}]}
    async with FakeLlamaServer() as fake:
        be_lm_studio(fake)
        fake.replies["/api/v1/models"] = Reply.of(odd)
        (model,) = (await scrape(fake, KIND)).models
    assert (model.name, model.is_loaded) == ("a", False)
