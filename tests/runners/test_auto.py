"""Claims about extproc/runners/auto.py: which kind of server there is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from extproc.core.observation import ScrapeStatus
from extproc.runners.auto import CHECK_EVERY_SCRAPES
from extproc.runners.probe import Probe, ScrapePriority
from tests.fakes.foreign_server import (
    be_llama_swap,
    be_lm_studio,
    be_ollama,
    be_openai,
    be_sglang,
    be_vllm,
    be_vllm_without_stats,
    is_no_llama_server,
    tag,
)
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.runners.kit import probe_of, scrape


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlamaServer]:
    async with FakeLlamaServer() as server:
        yield server


async def kind(probe: Probe) -> str:
    return (await probe.scrape(ScrapePriority.IDLE)).runner


@pytest.mark.parametrize(
    ("be", "runner"),
    [
        (lambda _: None, "llama-server"),
        (lambda fake: be_ollama(fake, [tag("m:1")], []), "ollama"),
        (lambda fake: be_vllm(fake, [(0, 0)]), "vllm"),
        (be_vllm_without_stats, "vllm"),
        (lambda fake: be_sglang(fake, (0, 0, 0)), "sglang"),
        (lambda fake: be_lm_studio(fake, m=["m"]), "lm-studio"),
        (lambda fake: be_openai(fake, ["m"]), "openai"),
        (lambda fake: be_llama_swap(fake, m=[]), "openai"),  # with a version as Ollama has one
    ],
)
async def test_each_kind_is_found_at_the_first_scrape(
    fake: FakeLlamaServer, be: Callable[[FakeLlamaServer], None], runner: str
) -> None:
    be(fake)
    observation = await scrape(fake)
    assert (observation.runner, observation.status) == (runner, ScrapeStatus.READY)


async def test_a_sglang_with_ollamas_paths_is_none(fake: FakeLlamaServer) -> None:
    be_sglang(fake, (0, 0, 0))
    fake.replies["/api/version"] = Reply.of({"version": "0.5.6"})
    assert (await scrape(fake)).runner == "sglang"


async def test_an_earlier_lm_studio_answers_every_path_and_is_openai(
    fake: FakeLlamaServer,
) -> None:
    """It lists its models as OpenAI's API does, and has an error for all other paths."""
    be_openai(fake, ["m"])
    for path in ("/props", "/slots", "/health", "/metrics", "/api/version", "/v1/loads"):
        fake.replies[path] = Reply.of({"error": f"Unexpected endpoint or method. (GET {path})"})
    assert (await scrape(fake)).runner == "openai"


@pytest.mark.parametrize(
    ("path", "reply"),
    [
        ("/version", Reply(status=404)),
        ("/metrics", Reply(status=404)),
        ("/metrics", Reply(body=b"# HELP vllm:healthy_pods Pods behind a gateway\n")),
        ("/v1/models", Reply.of({"data": [{"id": "m", "owned_by": "library"}]})),
    ],
)
async def test_what_lacks_a_sign_of_a_vllm_without_stats_is_openai(
    fake: FakeLlamaServer, path: str, reply: Reply
) -> None:
    """Such as a gateway before one: it serves as it did, while a vLLM's probe may not read it."""
    be_vllm_without_stats(fake)
    fake.replies[path] = reply
    observation = await scrape(fake)
    assert (observation.runner, observation.status) == ("openai", ScrapeStatus.READY)


async def test_what_is_none_of_all_fails(fake: FakeLlamaServer) -> None:
    is_no_llama_server(fake)
    observation = await scrape(fake)
    assert observation.status is ScrapeStatus.FAILED
    assert [issue.code for issue in observation.issues] == ["bad-answer"]


@pytest.mark.parametrize("reply", [Reply(status=503), Reply(status=401), Reply(status=500)])
async def test_a_llama_server_that_is_loading_or_closed_is_not_mistaken(
    fake: FakeLlamaServer, reply: Reply
) -> None:
    """Though it lists its models as all do."""
    fake.replies["/props"] = reply
    fake.replies["/health"] = reply
    fake.replies["/slots"] = reply
    assert (await scrape(fake)).runner in ("", "llama-server")


async def test_another_kind_at_the_address_is_found_after_a_failure(fake: FakeLlamaServer) -> None:
    be_ollama(fake, [tag("m:1")], [])
    probe = probe_of(fake)
    assert await kind(probe) == "ollama"
    fake.replies.clear()
    assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.FAILED
    assert await kind(probe) == "llama-server"
    await probe.aclose()


async def test_a_llama_server_in_place_of_any_other_is_found_without_one(
    fake: FakeLlamaServer,
) -> None:
    """It has the path that the other kind is scraped at."""
    be_openai(fake, ["m"])
    probe = probe_of(fake)
    assert await kind(probe) == "openai"
    fake.replies.clear()
    kinds = [await kind(probe) for _ in range(CHECK_EVERY_SCRAPES)]
    assert kinds[0] == "openai"
    assert kinds[-1] == "llama-server"
    await probe.aclose()
