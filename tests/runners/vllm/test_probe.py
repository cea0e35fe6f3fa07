"""Claims about extproc/runners/vllm/probe.py."""

from __future__ import annotations

import pytest

from extproc.core.observation import ScrapeStatus
from extproc.runners.kind import RunnerKind
from extproc.runners.probe import ScrapePriority
from extproc.runners.vllm.probe import MODELS_EVERY_SCRAPES, busy_of
from tests.fakes.foreign_server import POSTED, be_vllm
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.runners.kit import probe_of, scrape

KIND = RunnerKind.VLLM


async def test_what_runs_and_waits_in_all_engines_is_busy() -> None:
    """And nothing that is only named alike."""
    async with FakeLlamaServer() as fake:
        be_vllm(fake, [(3, 1), (2, 0)])
        observation = await scrape(fake, KIND)
    assert observation.busy_slots == 6
    assert observation.slots is None
    assert [one.name for one in observation.models] == ["m"]
    assert (observation.context_tokens, observation.shared_tokens) == (2048, 0)
    assert observation.runner == "vllm"


@pytest.mark.parametrize(
    ("paths", "apis"),
    [
        (("/tokenize",), {"tokenize"}),  # its model generates
        (("/tokenize", "/pooling"), {"tokenize", "pooling"}),
        (("/tokenize", "/pooling", "/classify"), {"tokenize", "pooling", "classify"}),
        (POSTED, {"vllm", "pooling", "classify", "rerank", "score", "tokenize"}),
    ],
)
async def test_it_has_the_paths_that_its_model_decides(
    paths: tuple[str, ...], apis: set[str]
) -> None:
    """They are asked for once in each process, by a method that they do not have."""
    async with FakeLlamaServer() as fake:
        probe = probe_of(fake, KIND)
        be_vllm(fake, [(0, 0)], ("process_start_time_seconds 1.76e+09",), paths=paths)
        for _ in range(MODELS_EVERY_SCRAPES + 1):
            assert (await probe.scrape(ScrapePriority.IDLE)).apis == frozenset(apis)
        await probe.aclose()
    assert [fake.count(path) for path in POSTED] == [1] * len(POSTED)
    assert fake.count("/v1/models") == 2


async def test_a_path_is_missing_only_where_that_is_said() -> None:
    async with FakeLlamaServer() as fake:
        be_vllm(fake, [(0, 0)])
        fake.replies["/score"] = Reply(status=401)
        fake.replies["/pooling"] = Reply(body=b"x" * 100, cut_after=10)
        apis = (await scrape(fake, KIND)).apis
    assert apis == frozenset({"vllm", "score", "pooling", "tokenize"})


@pytest.mark.parametrize(
    ("body", "busy"),
    [
        (b"vllm:num_requests_running 2.0\n", 2),
        (b'vllm:num_requests_running{a="}"} 2.0\n', None),
        (b"vllm:num_requests_waiting 2.0\n", None),
        (b"# vllm:num_requests_running 2.0\n", None),
        (b"vllm:num_requests_running NaN\n", None),
        (b"vllm:num_requests_running -1.0\n", None),
        (b"llamacpp:requests_processing 2\n", None),
        (b"vllm:num_requests_running 999999999\n", 65_536),
        (b"", None),
    ],
)
def test_metrics(body: bytes, busy: int | None) -> None:
    assert busy_of(body) == busy


async def test_metrics_that_are_none_of_its_own_fail_the_scrape() -> None:
    async with FakeLlamaServer() as fake:
        be_vllm(fake, [(0, 0)])
        probe = probe_of(fake, KIND)
        assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.READY
        fake.replies["/metrics"] = Reply(body=b"hello")
        assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.FAILED
        be_vllm(fake, [(1, 0)])
        assert (await probe.scrape(ScrapePriority.IDLE)).busy_slots == 1
        await probe.aclose()
    assert fake.count("/v1/models") == 2, "another process may have another model"


@pytest.mark.parametrize(
    ("shares", "full"),
    [
        ((), False),
        (("kv:0.5",), False),
        (("kv:0.95",), True),
        (("gpu:1.0",), True),
        (("kv:0.96", "kv:0.2"), False),
        (("kv:0.96", "kv:0.97"), True),
        (("kv:NaN",), False),
    ],
)
async def test_it_is_full_when_no_engine_has_room_in_its_cache(
    shares: tuple[str, ...], full: bool
) -> None:
    """A gauge of each engine, from 0 to 1; earlier versions named it by the GPU."""
    lines = []
    for number, share in enumerate(shares):
        name, value = share.split(":")
        labels = f'{{engine="{number}",model_name="m"}}'
        lines.append(f"vllm:{name}_cache_usage_perc{labels} {value}")
    async with FakeLlamaServer() as fake:
        be_vllm(fake, [(1, 0)], tuple(lines))
        observation = await scrape(fake, KIND)
    assert (observation.is_full, observation.busy_slots) == (full, 1)


def sleep_state(awake: int, engine: int = 0) -> tuple[str, ...]:
    labels = f'engine="{engine}",model_name="m"'
    return tuple(
        f'vllm:engine_sleep_state{{{labels},sleep_state="{state}"}} {float(value)}'
        for state, value in (("awake", awake), ("weights_offloaded", 1 - awake), ("discard_all", 0))
    )


async def test_one_that_sleeps_gets_nothing_until_it_is_awake() -> None:
    """By its metrics; no request wakes it, as one of a llama-server does."""
    async with FakeLlamaServer() as fake:
        be_vllm(fake, [(0, 0)], sleep_state(1))
        probe = probe_of(fake, KIND)
        assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.READY
        be_vllm(fake, [(0, 0)], (*sleep_state(1), *sleep_state(0, 1)))
        asleep = await probe.scrape(ScrapePriority.IDLE)
        assert asleep.status is ScrapeStatus.LOADING
        assert [issue.code for issue in asleep.issues] == ["asleep"]
        be_vllm(fake, [(0, 0)], sleep_state(1))
        assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.READY
        await probe.aclose()


async def test_without_the_metric_its_path_says_whether_it_sleeps() -> None:
    """Which only servers in development mode have; others are asked once for all models."""
    async with FakeLlamaServer() as fake:
        be_vllm(fake, [(0, 0)])
        probe = probe_of(fake, KIND)
        for _ in range(3):
            assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.READY
        assert fake.count("/is_sleeping") == 1
        await probe.aclose()
        fake.replies["/is_sleeping"] = Reply.of({"is_sleeping": True})
        probe = probe_of(fake, KIND)
        assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.LOADING
        fake.replies["/is_sleeping"] = Reply.of({"is_sleeping": False})
        assert (await probe.scrape(ScrapePriority.IDLE)).status is ScrapeStatus.READY
        await probe.aclose()


async def test_another_process_is_seen_at_once_with_its_models() -> None:
    """Also one that was ready again before the next scrape: by its start, or the names of models
    where that is not shown."""
    async with FakeLlamaServer() as fake:
        probe = probe_of(fake, KIND)
        seen = []
        for started, name in (("1.76442488755e+09", "m"), ("1.7644249e+09", "m"), ("", "other")):
            more = (f"process_start_time_seconds {started}",) if started else ()
            be_vllm(fake, [(0, 0)], more, name)
            for _ in range(2):
                observation = await probe.scrape(ScrapePriority.IDLE)
                seen.append((observation.instance, [one.name for one in observation.models]))
        await probe.aclose()
    assert seen[::2] == seen[1::2]
    assert seen[::2] == [("1.76442488755e+09", ["m"]), ("1.7644249e+09", ["m"]), (None, ["other"])]
    assert fake.count("/v1/models") == 3


async def test_one_that_counts_no_requests_serves_and_says_so() -> None:
    """As with --disable-log-stats: what it does not show is unknown, and nothing failed."""
    text = "# HELP process_start_time_seconds Start time of the process since unix epoch.\n"
    text += "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.76e+09\n"
    async with FakeLlamaServer() as fake:
        be_vllm(fake, [(0, 0)])
        fake.replies["/metrics"] = Reply(body=text.encode())
        observation = await scrape(fake, KIND)
        fake.replies["/metrics"] = Reply(body=text.encode(), status=500)
        failed = await scrape(fake, KIND)
    assert observation.status is ScrapeStatus.READY
    assert (observation.busy_slots, observation.is_full) == (None, False)
    assert [issue.code for issue in observation.issues] == ["metrics-disabled"]
    assert [one.name for one in observation.models] == ["m"]
    assert failed.status is ScrapeStatus.FAILED


@pytest.mark.parametrize("status", [401, 403])
async def test_one_that_wants_a_key_serves_and_says_so(status: int) -> None:
    """With --api-key; its metrics are open, and clients may have the key. What it serves is asked
    for until it is shown."""
    async with FakeLlamaServer() as fake:
        be_vllm(fake, [(1, 0)])
        fake.replies["/v1/models"] = Reply(status=status)
        probe = probe_of(fake, KIND)
        for _ in range(2):
            observation = await probe.scrape(ScrapePriority.IDLE)
            assert observation.status is ScrapeStatus.READY
            assert (observation.busy_slots, observation.models) == (1, ())
            assert [issue.code for issue in observation.issues] == ["unauthorized"]
        be_vllm(fake, [(1, 0)])
        observation = await probe.scrape(ScrapePriority.IDLE)
        await probe.aclose()
    assert ([one.name for one in observation.models], observation.issues) == (["m"], ())
