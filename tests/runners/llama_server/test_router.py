"""The models of a router: which are asked, and what they come to together."""

from __future__ import annotations

from dataclasses import replace

from extproc.core.observation import ModelState, ScrapeStatus
from extproc.runners.llama_server.arguments import ContextArguments
from extproc.runners.llama_server.parse import ModelEntry
from extproc.runners.llama_server.router import RouterModels
from extproc.runners.llama_server.slots_request import SlotCounts
from extproc.runners.probe import ScrapePriority, SleepTrial

IDLE, STEADY = ScrapePriority.IDLE, ScrapePriority.STEADY


def entry(name: str, status: ModelState, may_sleep: bool = False) -> ModelEntry:
    return ModelEntry(name=name, aliases=(), status=status, may_sleep=may_sleep)


def told(**models: tuple[int, int]) -> SlotCounts:
    return SlotCounts(
        began_at=1.0,
        answered_at=2.0,
        slots=sum(slots for slots, _ in models.values()),
        busy_slots=sum(busy for _, busy in models.values()),
        newest_task=None,
        is_first_on_connection=False,
        by_model=dict(models),
    )


def router(*entries: ModelEntry, autoloads: bool = True) -> RouterModels:
    models = RouterModels(SleepTrial())
    models.list(entries, autoloads=autoloads)
    return models


def test_only_loaded_models_are_asked_and_summed() -> None:
    models = router(
        entry("a", ModelState.LOADED),
        entry("b", ModelState.UNLOADED),
        entry("c", ModelState.LOADED),
        entry("d", ModelState.LOADING),
    )
    assert models.models_to_request(0.0, IDLE) == ("a", "c")
    models.count(told(a=(4, 1), c=(2, 2)))
    assert (models.status, models.slots, models.busy_slots) == (ScrapeStatus.READY, 6, 3)
    by_name = {reading.name: reading for reading in models.readings()}
    assert (by_name["a"].slots, by_name["a"].busy_slots, by_name["a"].is_loaded) == (4, 1, True)
    assert (by_name["b"].slots, by_name["b"].busy_slots, by_name["b"].is_loaded) == (
        None,
        None,
        False,
    )


def test_an_unloaded_model_has_no_busy_slots_and_keeps_its_size() -> None:
    models = router(entry("a", ModelState.LOADED))
    models.count(told(a=(4, 3)))
    models.list((entry("a", ModelState.UNLOADED),), autoloads=True)
    (reading,) = models.readings()
    assert (reading.is_loaded, reading.slots, reading.busy_slots) == (False, 4, None)
    assert models.busy_slots == 0


def test_nothing_loaded_offers_the_slot_that_loads_a_model() -> None:
    models = router(entry("a", ModelState.UNLOADED))
    assert (models.status, models.slots) == (ScrapeStatus.ASLEEP, 1)


def test_nothing_loaded_and_no_autoload_is_an_issue() -> None:
    models = router(entry("a", ModelState.UNLOADED), autoloads=False)
    assert (models.status, models.slots) == (ScrapeStatus.READY, 0)
    assert [issue.code for issue in models.issues()] == ["no-model-loaded"]


def test_a_first_model_on_its_way_is_loading() -> None:
    assert router(entry("a", ModelState.LOADING)).status is ScrapeStatus.LOADING


def test_sleeping_models_keep_their_slots_and_are_not_asked() -> None:
    models = router(entry("a", ModelState.LOADED, may_sleep=True))
    models.count(told(a=(4, 0)))
    models.list((entry("a", ModelState.SLEEPING, may_sleep=True),), autoloads=True)
    assert (models.status, models.slots) == (ScrapeStatus.ASLEEP, 4)
    assert models.models_to_request(0.0, STEADY) == ()


def test_a_model_that_may_sleep_is_left_in_peace_while_idle() -> None:
    models = router(entry("a", ModelState.LOADED, may_sleep=True), entry("b", ModelState.LOADED))
    assert models.models_to_request(0.0, IDLE) == ("a", "b")
    models.count(told(a=(4, 0), b=(4, 0)))
    assert models.models_to_request(3.0, IDLE) == ("b",)
    assert models.models_to_request(3.0, STEADY) == ("a", "b")
    models.list(
        (entry("a", ModelState.SLEEPING, may_sleep=True), entry("b", ModelState.LOADED)),
        autoloads=True,
    )
    models.list(
        (entry("a", ModelState.LOADED, may_sleep=True), entry("b", ModelState.LOADED)),
        autoloads=True,
    )
    assert models.models_to_request(6.0, IDLE) == ("a", "b"), "it woke: look who is there"


def test_a_model_that_failed_to_load_is_an_issue() -> None:
    models = router(entry("a", ModelState.LOADED), entry("b", ModelState.FAILED))
    (issue,) = models.issues()
    assert issue.code == "model-failed" and "b" in issue.message


def test_a_router_without_models_is_an_issue_where_nobody_loads_them() -> None:
    for is_managed in (False, True):
        models = RouterModels(SleepTrial(), is_managed=is_managed)
        models.list((entry("a", ModelState.UNLOADED),), autoloads=False)
        assert [issue.code for issue in models.issues()] == ["no-model-loaded"] * (not is_managed)


def test_what_holds_a_place_and_when_it_was_listed() -> None:
    models = RouterModels(SleepTrial())
    entries = tuple(entry(status.value, status) for status in ModelState)
    models.list(entries, autoloads=False, max_models=3, listed_at=7.0)
    reading = models.reading
    assert reading is not None and (reading.autoloads, reading.max_models) == (False, 3)
    assert reading.running == {"loaded", "loading", "sleeping"} and reading.listed_at == 7.0
    models.leaving = frozenset({"loaded"})
    assert models.models_to_request(0.0, STEADY) == ()


def test_a_new_process_has_listed_nothing() -> None:
    models = router(entry("a", ModelState.LOADED))
    models.start_process()
    assert models.reading is None


def test_each_state_is_reported_in_the_routers_own_word() -> None:
    states = list(ModelState)
    models = router(*(entry(state.value, state) for state in states))
    assert [reading.state for reading in models.readings()] == states


def test_the_context_that_the_slots_of_a_model_share() -> None:
    listed = (
        replace(entry("a", ModelState.LOADED), context=ContextArguments(True), slot_tokens=512),
        replace(entry("b", ModelState.LOADED), context=ContextArguments(False), slot_tokens=512),
        entry("c", ModelState.LOADED),
    )
    shared = [reading.shared_tokens for reading in router(*listed).readings()]
    assert shared == [512, 0, None]
