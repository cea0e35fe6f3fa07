"""One look over real HTTP: what is asked in which state, and what it comes to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from extproc.core.observation import MAX_ENTRIES, Observation, ScrapeStatus
from extproc.runners.client import RunnerClient
from extproc.runners.llama_server.probe import LlamaServerProbe, unwanted
from extproc.runners.llama_server.server_identity import MAX_ADAPTER_FAILURES
from extproc.runners.probe import ScrapePriority
from extproc.runners.target import EndpointTarget
from scraper.options import ScraperOptions
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.patience import PATIENT, PATIENT_SCRAPES

RECORDED = Path(__file__).parents[2] / "data" / "llamacpp"
IMPATIENT = replace(PATIENT_SCRAPES, slow_after_s=0.02)
NEVER_ASLEEP = {"may_sleep": False}


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlamaServer]:
    async with FakeLlamaServer(busy=(True, False)) as server:
        yield server


Open = Callable[..., LlamaServerProbe]


@pytest.fixture
async def open_probe(fake: FakeLlamaServer) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def open_one(
            options: ScraperOptions = PATIENT_SCRAPES,
            wants_counters: Callable[[], bool] = unwanted,
            **target: Any,
        ) -> LlamaServerProbe:
            probe = LlamaServerProbe(
                EndpointTarget(address=fake.address, **target),
                options,
                time.monotonic,
                wants_counters=wants_counters,
            )
            stack.push_async_callback(probe.aclose)
            return probe

        yield open_one


@pytest.fixture
def probe(open_probe: Open) -> LlamaServerProbe:
    return open_probe()


async def scrape(
    probe: LlamaServerProbe, priority: ScrapePriority = ScrapePriority.IDLE
) -> Observation:
    return await probe.scrape(priority)


async def scrape_until_counted(probe: LlamaServerProbe) -> None:
    """One look is enough, unless its patience was over before the answer came."""
    while (await scrape(probe)).busy_slots is None:
        pass


def codes(observation: Observation) -> list[str]:
    return [issue.code for issue in observation.issues]


async def test_the_first_scrape_learns_and_the_next_ones_only_count(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    first = await scrape(probe)
    assert (first.status, first.slots, first.busy_slots) == (ScrapeStatus.READY, 2, 1)
    assert [(m.name, m.aliases) for m in first.models] == [("fake", ("pretend",))]
    assert fake.paths() == ["/props", "/v1/models", "/lora-adapters", "/slots"]
    fake.busy = (True, True)
    second = await scrape(probe)
    assert second.busy_slots == 2
    assert second.instance == first.instance is not None
    assert fake.paths()[4:] == ["/slots"]


async def test_metrics_are_never_asked_for(fake: FakeLlamaServer, probe: LlamaServerProbe) -> None:
    for priority in ScrapePriority:
        await scrape(probe, priority)
    assert fake.count("/metrics") == 0


async def test_the_times_are_those_of_slots_alone(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    gate = asyncio.Event()
    fake.replies["/v1/models"] = Reply(status=500, gate=gate)
    scraping = asyncio.create_task(scrape(probe))
    await fake.was_asked("/v1/models")
    gate.set()
    learnt_at = time.monotonic()
    observation = await scraping
    assert learnt_at <= observation.began_at <= observation.answered_at <= time.monotonic()
    assert [model.name for model in observation.models] == ["fake"]


async def test_adapters_are_asked_for_until_they_are_reported(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    """A busy server may give no answer at first. It is ready all the same."""
    fake.replies["/lora-adapters"] = Reply.of({"error": "busy"}, 503)
    for _ in range(2):
        told = await scrape(probe)
        assert (told.status, told.adapters, told.awaits_adapters) == (
            ScrapeStatus.READY,
            None,
            True,
        )
    fake.replies["/lora-adapters"] = Reply.of([{"id": 0, "path": "/a/poet.gguf", "scale": 0.0}])
    told = await scrape(probe)
    assert told.adapters is not None and not told.awaits_adapters
    assert [(adapter.id, adapter.name) for adapter in told.adapters] == [(0, "poet")]
    asked = fake.count("/lora-adapters")
    assert (await scrape(probe)).adapters == told.adapters
    assert fake.count("/lora-adapters") == asked == 3


async def test_a_server_that_never_reports_its_adapters_is_not_waited_for_for_ever(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.replies["/lora-adapters"] = Reply.of({"error": "busy"}, 503)
    scrapes = [await scrape(probe) for _ in range(MAX_ADAPTER_FAILURES + 2)]
    awaited = [told.awaits_adapters for told in scrapes]
    assert awaited == [True] * (MAX_ADAPTER_FAILURES - 1) + [False] * 3
    assert fake.count("/lora-adapters") == MAX_ADAPTER_FAILURES


@pytest.mark.parametrize("reply", [Reply.of({}, 404), Reply.of({}, 401), Reply.of({"no": "list"})])
async def test_a_server_that_reports_no_adapters_has_none(
    fake: FakeLlamaServer, probe: LlamaServerProbe, reply: Reply
) -> None:
    fake.replies["/lora-adapters"] = reply
    told = await scrape(probe)
    assert (told.adapters, told.awaits_adapters) == ((), False)


async def test_a_loading_server_is_loading_whatever_is_asked(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.is_loading = True
    observation = await scrape(probe)
    assert (observation.status, observation.slots, observation.issues) == (
        ScrapeStatus.LOADING,
        None,
        (),
    )
    fake.is_loading = False
    assert (await scrape(probe)).status is ScrapeStatus.READY
    fake.is_loading = True
    assert (await scrape(probe)).status is ScrapeStatus.LOADING


async def test_hidden_slots_are_said_with_their_remedy(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.shows_slots = False
    observation = await scrape(probe)
    assert (observation.status, observation.slots) == (ScrapeStatus.READY, 2)
    assert observation.busy_slots is None
    assert codes(observation) == ["slots-disabled"]
    assert "--slots" in observation.issues[0].remedy
    assert fake.count("/slots") == 0, "/props told that they are hidden"
    await scrape(probe)
    assert fake.paths()[-1] == "/health"


async def test_hidden_slots_that_only_slots_reports(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.replies["/slots"] = Reply.of({"error": {"code": 501}}, 501)
    observation = await scrape(probe)
    assert codes(observation) == ["slots-disabled"] and observation.slots == 2


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_rejected_key_is_an_issue_of_a_ready_server(
    fake: FakeLlamaServer, open_probe: Open, key: str | None
) -> None:
    fake.api_key = "sesame"
    probe = open_probe(api_key=key)
    for observation in [await scrape(probe) for _ in range(2)]:
        assert (observation.status, observation.slots) == (ScrapeStatus.READY, None)
        assert observation.busy_slots is None
        assert codes(observation) == ["unauthorized"]
        assert "api_key_file" in observation.issues[0].remedy
        assert "wrong" not in str(observation)


async def test_the_right_key_opens(fake: FakeLlamaServer, open_probe: Open) -> None:
    fake.api_key = "sesame"
    observation = await scrape(open_probe(api_key="sesame"))
    assert (observation.busy_slots, observation.issues) == (1, ())


async def test_too_many_slots_of_the_operator_are_an_issue(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    few = await scrape(open_probe(slots=1))
    assert (few.slots, few.busy_slots, few.issues) == (2, 1, ())
    many = await scrape(open_probe(slots=5))
    assert many.slots == 2 and codes(many) == ["slots-override-too-large"]


async def test_a_server_that_went_away_is_unreachable_and_is_learnt_again(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    before = await scrape(probe)
    await fake.stop()
    gone = await scrape(probe)
    assert gone.status is ScrapeStatus.UNREACHABLE and codes(gone) == ["unreachable"]
    assert gone.slots is None and gone.busy_slots is None
    async with FakeLlamaServer(busy=(False,) * 4, port=fake.address.port) as other:
        other.marker = "<__media_two__>"
        back = await scrape(probe)
    assert (back.status, back.slots, back.busy_slots) == (ScrapeStatus.READY, 4, 0)
    assert back.instance not in (None, before.instance)


async def test_a_server_replaced_between_two_scrapes_is_noticed_in_one(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    probe = open_probe(**NEVER_ASLEEP)
    before = await scrape(probe)
    fake.break_connections()
    fake.marker, fake.busy = "<__media_two__>", (False, False)
    after = await scrape(probe)
    assert after.instance != before.instance
    assert after.busy_slots == 0


async def test_task_numbers_that_start_again_report_an_unmarked_process(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    fake.marker, fake.task = None, 70
    probe = open_probe(**NEVER_ASLEEP)
    before = await scrape(probe)
    fake.task = 71
    assert (await scrape(probe)).instance == before.instance
    fake.task = 2
    assert (await scrape(probe)).instance != before.instance


async def test_a_slot_count_that_changes_is_reported_and_examined(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    probe = open_probe(**NEVER_ASLEEP)
    await scrape(probe)
    asked = len(fake.asked)
    fake.busy = (True, True, False)
    observation = await scrape(probe)
    assert (observation.slots, observation.busy_slots) == (3, 2)
    assert fake.paths()[asked:] == ["/slots", "/props"]


async def test_a_slow_slots_is_no_failure_and_its_late_answer_counts(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    probe = open_probe(IMPATIENT)
    await scrape_until_counted(probe)
    gate = asyncio.Event()
    fake.replies["/slots"] = Reply.of([{"is_processing": True}] * 2)
    fake.replies["/slots"].gate = gate
    asked_before = fake.count("/slots")
    slow_since = []
    for _ in range(3):
        slow = await scrape(probe)
        slow_since.append(slow.began_at)
        assert (slow.status, slow.busy_slots) == (ScrapeStatus.READY, None)
        assert codes(slow) == ["slow-slots"]
    assert fake.count("/slots") == asked_before + 1, "one question, kept open"
    gate_opened_at = time.monotonic()
    gate.set()
    while (late := await scrape(probe)).busy_slots is None:
        slow_since.append(late.began_at)
    assert late.busy_slots == 2 and late.issues == ()
    assert late.began_at < gate_opened_at <= late.answered_at
    assert max(slow_since) <= late.began_at, "no observation in between makes it old news"


async def test_slots_that_never_answer_stay_no_failure(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    timeouts = replace(PATIENT, slots_read_s=0.05)
    options = replace(PATIENT_SCRAPES, timeouts=timeouts)
    probe = open_probe(options)
    fake.replies["/slots"] = Reply(gate=asyncio.Event())
    for _ in range(2):
        assert codes(await scrape(probe)) == ["slow-slots"]
    assert fake.count("/slots") == 2


async def test_a_fault_of_ours_while_slots_are_asked_lasts_for_one_scrape(
    fake: FakeLlamaServer, probe: LlamaServerProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scrape_until_counted(probe)
    with monkeypatch.context() as patch:
        patch.setattr(RunnerClient, "ask", _failing)
        with pytest.raises(RuntimeError):
            await scrape(probe)
    fake.busy = (True, True)
    await scrape_until_counted(probe)
    assert (await scrape(probe)).busy_slots == 2


async def _failing(_client: RunnerClient, _path: str) -> NoReturn:
    raise RuntimeError("a fault of ours")


async def test_a_server_that_stalls_altogether_fails(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    timeouts = replace(PATIENT, read_s=0.5, slots_read_s=0.5)
    probe = open_probe(ScraperOptions(slow_after_s=0.05, timeouts=timeouts))
    await scrape_until_counted(probe)
    for path in ("/slots", "/health", "/props"):
        fake.replies[path] = Reply(gate=asyncio.Event())
    observation = await scrape(probe)
    assert (observation.status, codes(observation)) == (ScrapeStatus.FAILED, ["no-answer"])
    fake.replies.clear()
    await scrape_until_counted(probe)


@pytest.mark.parametrize("path", ["/props", "/slots"])
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(body=b"{"), "bad-answer"),
        (Reply.of({"secret": "prompt"}), "bad-answer"),
        (Reply.of([{"is_processing": "yes"}]), "bad-answer"),
        (Reply(body=b"[" * 100_000), "bad-answer"),
        (Reply(body=b" " * (8 * 1024 * 1024 + 1)), "bad-answer"),
        (Reply(status=302, headers={"Location": "/health"}), "bad-answer"),
        (Reply(status=500, body=b"prompt"), "bad-answer"),
        (Reply(body=b"x" * 50, cut_after=70), "no-answer"),
    ],
)
async def test_a_useless_answer_fails_once_and_says_why_without_quoting_it(
    fake: FakeLlamaServer, probe: LlamaServerProbe, path: str, reply: Reply, code: str
) -> None:
    fake.replies[path] = reply
    observation = await scrape(probe)
    assert (observation.status, codes(observation)) == (ScrapeStatus.FAILED, [code])
    assert observation.busy_slots is None
    assert "prompt" not in str(observation) and "xx" not in str(observation)
    fake.replies.clear()
    assert (await scrape(probe)).busy_slots == 1


async def test_another_program_at_the_address_fails(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    for path in ("/props", "/slots", "/health", "/v1/models"):
        fake.replies[path] = Reply(status=404, body=b"nginx")
    observation = await scrape(probe)
    assert (observation.status, codes(observation)) == (ScrapeStatus.FAILED, ["bad-answer"])


async def test_a_server_without_props_still_counts(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.replies["/props"] = Reply(status=404)
    observation = await scrape(probe)
    assert (observation.status, observation.slots, observation.busy_slots) == (
        ScrapeStatus.READY,
        2,
        1,
    )


# Sleep


async def test_a_sleeper_is_seen_asleep_and_not_woken(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.is_sleeping = True
    for priority in (*ScrapePriority, *ScrapePriority):
        observation = await scrape(probe, priority)
        assert (observation.status, observation.slots) == (ScrapeStatus.ASLEEP, 2)
        assert observation.busy_slots == 0
    assert fake.count("/slots") == 0


async def test_a_sleeper_that_somebody_woke_is_counted_until_it_is_idle(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.is_sleeping = True
    await scrape(probe)
    fake.is_sleeping = False
    assert (await scrape(probe)).busy_slots == 1
    fake.busy = (False, False)
    assert (await scrape(probe)).busy_slots == 0
    quiet = await scrape(probe)
    assert (quiet.status, quiet.busy_slots, quiet.issues) == (ScrapeStatus.READY, None, ())
    assert fake.count("/slots") == 2
    assert (await scrape(probe, ScrapePriority.STEADY)).busy_slots == 0


# Routers


async def test_a_routers_loaded_models_are_summed_and_no_other_is_touched(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.router_models = {"a": "loaded", "b/c d": "loaded", "e": "unloaded", "f": "loading"}
    observation = await scrape(probe)
    assert (observation.status, observation.slots, observation.busy_slots) == (
        ScrapeStatus.READY,
        4,
        2,
    )
    readings = {model.name: model for model in observation.models}
    assert (readings["a"].slots, readings["a"].busy_slots) == (2, 1)
    assert not readings["e"].is_loaded and not readings["f"].is_loaded
    queries = [asked.query for asked in fake.asked if asked.path == "/slots"]
    assert queries == [{"model": [name], "autoload": ["false"]} for name in ("a", "b/c d")]
    assert all(asked.query == {} for asked in fake.asked if asked.path == "/props")


async def test_a_routers_tasks_are_reported_with_their_models(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    """And the most that one slot holds, of whichever model."""
    fake.router_models = {"a": "loaded", "b/c d": "loaded", "e": "unloaded"}
    fake.model_slots = {
        "a": (RECORDED / "router_slots_loaded_model.json").read_bytes(),
        "b/c d": (RECORDED / "slots_busy.json").read_bytes(),
    }
    observation = await scrape(probe)
    assert (observation.slots, observation.busy_slots) == (6, 2)
    told = [(one.model, one.task_id, one.decoded_tokens) for one in observation.slot_readings]
    assert told == [("b/c d", 4, 713), ("b/c d", 3, 714)]
    assert observation.context_tokens == 32_768


async def test_a_routers_tasks_are_as_many_as_a_plain_servers(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    """All busy slots are counted, and of all models together the first ones read."""
    fake.router_models = {"a": "loaded", "b": "loaded"}
    slots = [{"is_processing": True, "id_task": number} for number in range(MAX_ENTRIES - 1)]
    fake.model_slots = dict.fromkeys("ab", json.dumps(slots).encode())
    observation = await scrape(probe)
    assert observation.busy_slots == 2 * len(slots)
    assert [one.model for one in observation.slot_readings] == ["a"] * len(slots) + ["b"]
    assert observation.context_tokens is None


async def test_a_model_unloaded_between_the_questions_is_left_out(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    gate = asyncio.Event()
    fake.router_models = {"a": "loaded", "b": "loaded"}
    entry = Reply.of({"data": fake._models()})
    entry.gate = gate
    fake.replies["/v1/models"] = entry
    scraping = asyncio.create_task(scrape(probe))
    await fake.was_asked("/v1/models")
    fake.router_models = {"a": "loaded", "b": "unloaded"}
    gate.set()
    assert (await scraping).busy_slots == 1
    fake.router_models = {"a": "unloaded", "b": "unloaded"}
    none_left = await scrape(probe)
    assert (none_left.status, none_left.busy_slots) == (ScrapeStatus.READY, None)


async def test_a_router_with_nothing_loaded_waits_for_the_first_request(
    fake: FakeLlamaServer, probe: LlamaServerProbe
) -> None:
    fake.router_models = {"a": "unloaded"}
    observation = await scrape(probe)
    assert (observation.status, observation.slots, observation.busy_slots) == (
        ScrapeStatus.ASLEEP,
        1,
        0,
    )
    assert fake.count("/slots") == 0


async def test_closing_in_the_middle_of_a_stall_leaves_nothing(fake: FakeLlamaServer) -> None:
    probe = LlamaServerProbe(EndpointTarget(address=fake.address), IMPATIENT, time.monotonic)
    fake.replies["/slots"] = Reply(gate=asyncio.Event())
    await scrape(probe)
    await probe.aclose()
    await fake.had_no_connections()


async def test_slots_are_not_slow_while_this_process_was_blocked(fake: FakeLlamaServer) -> None:
    """The time that it lost is none that the server took."""
    waits = 0

    def lost_s(_: float) -> float:
        nonlocal waits
        waits += 1
        if waits == 3:
            gate.set()
        return 1.0

    gate = asyncio.Event()
    slots = [{"id": 0, "n_ctx": 4096, "is_processing": True, "id_task": 0}]
    fake.replies["/slots"] = replace(Reply.of(slots), gate=gate)
    target = EndpointTarget(address=fake.address)
    probe = LlamaServerProbe(target, IMPATIENT, time.monotonic, lost_s=lost_s)
    observation = await scrape(probe)
    assert codes(observation) == [] and observation.busy_slots == 1
    assert fake.count("/health") == 0
    await probe.aclose()


async def test_a_routers_list_is_read_while_one_of_its_models_answers_late(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    """Its other models come and go meanwhile; and that a request is open is said with it."""
    fake.router_models = {"a": "loaded", "b": "unloaded"}
    fake.autoloads = False
    probe = open_probe(IMPATIENT)
    while (
        (seen := await scrape(probe)).busy_slots is None
        or not seen.router
        or seen.router.is_counting
    ):
        pass
    assert seen.router.running == {"a"}
    assert (seen.router.autoloads, seen.router.max_models) == (False, 4)
    gate = asyncio.Event()
    fake.replies["/slots"] = Reply(gate=gate)
    await scrape(probe)
    fake.router_models["b"] = "loading"
    slow = await scrape(probe)
    assert codes(slow) == ["slow-slots"] and slow.router is not None
    assert slow.router.running == {"a", "b"} and slow.router.is_counting
    assert slow.router.listed_at > seen.router.listed_at
    gate.set()
    del fake.replies["/slots"]
    probe.set_leaving(frozenset({"a"}))
    while (left := await scrape(probe)).router == slow.router or left.busy_slots is not None:
        pass
    asked = fake.count("/slots")
    left = await scrape(probe)
    assert left.router is not None and not left.router.is_counting
    assert fake.count("/slots") == asked and left.busy_slots is None


# The server's own counters

METRICS = (RECORDED / "metrics_busy.txt").read_bytes()


def always() -> bool:
    return True


async def test_counters_are_read_before_the_slots_if_wanted(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    fake.shows_counters = True
    fake.replies["/metrics"] = Reply(body=METRICS)
    wants = [False, True, False]
    probe = open_probe(wants_counters=lambda: wants.pop(0))
    assert (await scrape(probe)).counters is None
    observation = await scrape(probe)
    counters = observation.counters
    assert counters is not None
    assert (counters.processed.value, counters.generated.value) == (20, 0)
    assert counters.began_at <= observation.began_at
    assert fake.paths()[-2:] == ["/metrics", "/slots"]
    assert (await scrape(probe)).counters is None


@pytest.mark.parametrize("status", [None, 200, 500])
async def test_a_server_without_counters_is_scraped_as_ever(
    fake: FakeLlamaServer, open_probe: Open, status: int | None
) -> None:
    """It is asked for them only if it says that it has them."""
    fake.shows_counters = status is not None
    fake.replies["/metrics"] = Reply.of({}, status or 404)
    observation = await scrape(open_probe(wants_counters=always))
    assert (observation.counters, observation.busy_slots, observation.issues) == (None, 1, ())
    assert fake.count("/metrics") == (status is not None)


async def test_counters_that_do_not_come_hold_up_no_scrape_for_long(
    fake: FakeLlamaServer, open_probe: Open
) -> None:
    fake.shows_counters = True
    fake.replies["/metrics"] = Reply(gate=asyncio.Event())
    observation = await scrape(open_probe(wants_counters=always))
    assert (observation.counters, observation.busy_slots) == (None, 1)


async def test_counters_of_a_router_are_not_read(fake: FakeLlamaServer, open_probe: Open) -> None:
    """Its /metrics are those of one of its models."""
    fake.router_models = {"a": "loaded"}
    observation = await scrape(open_probe(wants_counters=always))
    assert (observation.counters, observation.busy_slots) == (None, 1)
    assert fake.count("/metrics") == 0
