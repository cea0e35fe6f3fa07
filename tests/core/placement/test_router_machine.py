"""Claims about extproc/core/placement/router_machine.py: what is asked of a router, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.observation import (
    ModelReading,
    Observation,
    RouterReading,
    ScrapeStatus,
)
from extproc.core.placement.load_policy import FOREIGN_S, MAX_FAILURES, STABLE_S
from extproc.core.placement.machine import KeptState
from extproc.core.placement.router_machine import (
    ASK_AGAIN_S,
    PAUSE_S,
    RouterAction,
    RouterCall,
    RouterMachine,
    RouterUse,
)

ADDRESS = Address.of("10.0.0.1", 8080)


@dataclass
class Kit:
    """A router with models a, b and c, and what it says in a scrape."""

    max_models: int = 1
    names: tuple[str, ...] = ("a", "b", "c")
    now: float = 100.0
    loaded: set[str] = field(default_factory=set)
    loading: set[str] = field(default_factory=set)
    asleep: set[str] = field(default_factory=set)
    busy: dict[str, int] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    shows_slots: bool = True
    is_counting: bool = False

    def __post_init__(self) -> None:
        self.core = RouterMachine("r", ADDRESS)
        self.open: set[str] = set()

    def scrape(self, later_s: float = 0.25, listed_ago_s: float = 0.0) -> Observation:
        """One scrape, applied; returns what the core is to see."""
        self.now += later_s
        observation = Observation(
            address=ADDRESS,
            began_at=self.now,
            answered_at=self.now,
            status=ScrapeStatus.READY,
            busy_slots=sum(self.busy.values()) if self.shows_slots else None,
            models=tuple(
                ModelReading(
                    name=name,
                    is_loaded=name in self.loaded,
                    is_loading=name in self.loading,
                    busy_slots=self.busy.get(name, 0) if name in self.loaded else None,
                )
                for name in self.names
            ),
            router=RouterReading(
                autoloads=False,
                max_models=self.max_models,
                running=frozenset(self.loaded | self.loading | self.asleep),
                listed_at=self.now - listed_ago_s,
                is_counting=self.is_counting,
            ),
        )
        assert observation.router is not None
        self.core.observe(observation, observation.router, self.now)
        edited = self.core.edited(observation)
        self.open = {one.name for one in edited.models if not one.is_closed}
        return edited

    def want(self, *models: str, retried: tuple[str, ...] = ()) -> None:
        self.core.want(models, retried, self.now)

    def use(self, model: str) -> RouterUse:
        return RouterUse(
            leases=self.leases.get(model, 0),
            is_open=model in self.open,
            shows_slots=self.shows_slots,
        )

    def next(self) -> RouterCall | None:
        return self.core.next_call(self.use, self.now)

    def next_unload(self) -> RouterCall | None:
        """The next call, after a scrape that leaves the slots of the leaving models alone."""
        assert self.next() is None
        self.scrape()
        return self.next()

    def called(self, call: RouterCall, problem: str = "", is_unsure: bool = False) -> None:
        self.core.called(call, problem, self.now, is_unsure=is_unsure)

    def state(self, model: str) -> KeptState:
        return self.core.machine.statuses[model].state

    def load(self, model: str) -> None:
        """It is wanted, asked for and loaded."""
        self.want(model)
        call = self.next()
        assert call == RouterCall(action=RouterAction.LOAD, model=model)
        self.called(call)
        self.loading = {model}
        self.scrape()
        self.loading, self.loaded = set(), self.loaded | {model}
        self.scrape()


def unload(model: str) -> RouterCall:
    return RouterCall(action=RouterAction.UNLOAD, model=model)


def load(model: str) -> RouterCall:
    return RouterCall(action=RouterAction.LOAD, model=model)


def about_to_swap() -> Kit:
    """The router has `a`, and is asked now to unload it for `b`."""
    kit = Kit(loaded={"a"})
    kit.scrape()
    kit.want("b")
    kit.scrape()
    kit.next()
    kit.scrape()
    assert kit.next_unload() == unload("a")
    return kit


def test_a_wanted_model_is_loaded_and_only_then_gets_requests() -> None:
    kit = Kit()
    kit.scrape()
    assert kit.open == set() and kit.next() is None
    kit.want("b")
    assert kit.state("b") is KeptState.WAITING
    call = kit.next()
    assert call == load("b") and kit.next() is None, "one call at a time"
    assert kit.state("b") is KeptState.LOADING
    kit.called(load("b"))
    kit.loading = {"b"}
    kit.scrape()
    assert kit.open == set() and kit.next() is None and kit.core.awaits_change
    kit.loading, kit.loaded = set(), {"b"}
    kit.scrape()
    assert (kit.state("b"), kit.open) == (KeptState.LOADED, {"b"})
    assert kit.core.machine.statuses["b"].load_s == 0.5
    assert not kit.core.awaits_change


def test_a_swap_waits_for_our_requests_and_for_foreign_ones() -> None:
    kit = Kit(leases={"a": 1}, busy={"a": 2})
    kit.scrape()
    kit.load("a")
    kit.want("b")
    assert kit.state("a") is KeptState.UNLOADING and kit.core.awaits_change
    assert kit.next() is None, "it still gets requests"
    kit.scrape()
    assert kit.open == set() and kit.next() is None, "one of ours runs there"
    kit.leases = {}
    assert kit.next() is None and kit.core.awaits_change
    kit.busy = {"a": 1}
    kit.scrape()
    assert kit.next() is None, "a foreign one runs there"
    kit.busy = {}
    kit.scrape()
    assert kit.next() is None and kit.core.leaving == {"a"}, "no request for slots may be open"
    kit.is_counting = True
    kit.scrape()
    assert kit.next() is None
    kit.is_counting = False
    kit.scrape()
    assert kit.next() == unload("a")
    kit.called(unload("a"))
    kit.scrape()
    assert kit.next() is None, "the router stops it"
    kit.loaded = set()
    kit.scrape()
    assert kit.next() == load("b")


def test_foreign_requests_are_waited_for_only_so_long() -> None:
    kit = Kit(busy={"a": 1})
    kit.scrape()
    kit.load("a")
    kit.want()
    kit.scrape()
    assert kit.next() is None
    kit.scrape(FOREIGN_S - 0.5)
    assert kit.next() is None
    kit.scrape(1.0)
    assert kit.next_unload() == unload("a")


def test_a_count_from_before_our_last_request_ended_proves_nothing() -> None:
    kit = Kit(leases={"a": 1})
    kit.scrape()
    kit.load("a")
    kit.want()
    kit.scrape()
    assert kit.next() is None
    kit.leases = {}
    assert kit.next() is None, "the last scrape saw no busy slot, but began before"
    kit.scrape()
    assert kit.next_unload() == unload("a")


def test_without_slots_our_own_requests_count() -> None:
    kit = Kit(shows_slots=False, leases={"a": 1})
    kit.scrape()
    kit.load("a")
    kit.want()
    kit.scrape()
    assert kit.next() is None
    kit.leases = {}
    assert kit.next_unload() == unload("a")


def test_nothing_is_loaded_beyond_the_routers_limit() -> None:
    kit = Kit(max_models=2)
    kit.scrape()
    kit.want("a", "b", "c")
    assert kit.next() == load("a")
    kit.called(load("a"))
    assert kit.next() == load("b"), "a is not listed yet"
    kit.called(load("b"))
    assert kit.next() is None
    unlimited = Kit(max_models=0)
    unlimited.scrape()
    unlimited.want("a", "b", "c")
    for name in ("a", "b", "c"):
        assert unlimited.next() == load(name)
        unlimited.called(load(name))


def test_what_is_loaded_at_first_stays_until_the_placement_decides() -> None:
    kit = Kit(max_models=2, loaded={"a"}, loading={"b"}, asleep=set())
    kit.scrape()
    assert (kit.state("a"), kit.state("b")) == (KeptState.LOADED, KeptState.LOADING)
    assert kit.open == {"a"} and kit.next() is None


def test_a_sleeping_model_is_loaded_and_unloaded_at_once() -> None:
    """A request wakes it; nothing runs in it, and to look would wake it, too."""
    kit = Kit(asleep={"a"})
    kit.scrape()
    kit.want("a")
    assert (kit.state("a"), kit.open) == (KeptState.LOADED, {"a"})
    kit.want("b")
    kit.scrape()
    assert kit.next_unload() == unload("a")


def test_a_load_that_fails_is_tried_again_and_then_left_alone() -> None:
    kit = Kit()
    kit.scrape()
    kit.want("a")
    for number in range(MAX_FAILURES):
        assert kit.next() == load("a"), number
        kit.called(load("a"))
        kit.loading = {"a"}
        kit.scrape()
        kit.loading = set()
        kit.scrape()
        assert kit.next() is None, "not at once"
        kit.scrape(40.0)
    assert kit.next() is None
    status = kit.core.machine.statuses["a"]
    assert status.state is KeptState.FAILED and "see its log" in status.problem
    kit.want()
    assert kit.state("a") is KeptState.FAILED
    kit.want("a", retried=("a",))
    assert kit.next() == load("a")


def test_a_list_from_before_a_call_says_nothing_about_it() -> None:
    kit = Kit()
    kit.scrape()
    kit.want("a")
    assert kit.next() == load("a")
    kit.scrape()
    kit.called(load("a"))
    kit.scrape(0.25, listed_ago_s=0.5)
    assert kit.state("a") is KeptState.LOADING
    kit.scrape()
    assert kit.state("a") is KeptState.RESTARTING, "it has accepted it and does not have it"


def test_a_rejected_call_is_made_again_after_a_pause() -> None:
    kit = about_to_swap()
    kit.called(unload("a"), "POST /models/unload was answered with status 401")
    kit.scrape()
    assert kit.next() is None
    kit.scrape(PAUSE_S)
    assert kit.next() == unload("a")
    kit.called(unload("a"))
    kit.scrape(ASK_AGAIN_S - 1.0)
    assert kit.next() is None
    kit.scrape(1.0)
    assert kit.next() == unload("a"), "it is still there"
    kit.called(unload("a"))
    kit.loaded = set()
    kit.scrape()
    assert kit.next() == load("b")
    kit.called(load("b"), "POST /models/load was answered with status 500")
    assert kit.state("b") is KeptState.RESTARTING and kit.next() is None
    kit.scrape(1.0)
    assert kit.next() == load("b")
    kit.called(load("b"), "POST /models/load was not answered within 10 s", is_unsure=True)
    kit.loaded = {"b"}
    kit.scrape()
    assert kit.state("b") is KeptState.LOADED


def test_a_model_that_ends_by_itself_is_loaded_again() -> None:
    kit = Kit()
    kit.scrape()
    kit.load("a")
    kit.loaded = set()
    kit.scrape()
    status = kit.core.machine.statuses["a"]
    assert (status.state, status.exits) == (KeptState.RESTARTING, 1)
    kit.scrape(1.0)
    kit.load("a")
    kit.scrape(STABLE_S)
    kit.loaded = set()
    kit.scrape()
    kit.scrape(1.0)
    assert kit.next() == load("a"), "what was steady has not failed: no longer pause"


def test_a_model_that_is_wanted_again_while_it_drains_stays() -> None:
    kit = Kit(leases={"a": 1})
    kit.scrape()
    kit.load("a")
    kit.want("b")
    kit.scrape()
    assert kit.open == set()
    kit.want("a")
    kit.scrape()
    assert (kit.state("a"), kit.open) == (KeptState.LOADED, {"a"})


def test_one_that_is_wanted_again_too_late_is_loaded_again() -> None:
    kit = Kit()
    kit.scrape()
    kit.load("a")
    kit.want()
    kit.scrape()
    kit.next()
    kit.scrape()
    assert kit.next_unload() == unload("a")
    kit.called(unload("a"))
    kit.want("a")
    kit.scrape()
    assert kit.state("a") is KeptState.UNLOADING and kit.open == set()
    kit.loaded = set()
    kit.scrape()
    assert kit.next() == load("a")


def test_another_list_of_models_is_another_machine() -> None:
    kit = Kit()
    kit.scrape()
    kit.load("a")
    before = kit.core.machine
    kit.scrape()
    assert kit.core.machine is before
    kit.names = ("a", "d")
    kit.scrape()
    after = kit.core.machine
    assert after is not before and set(after.models) == {"a", "d"} == set(after.statuses)
    assert after.statuses["a"].state is KeptState.LOADED and after.has_reported
    kit.max_models = 3
    kit.scrape()
    assert kit.core.machine.max_models == 3


def test_an_old_list_adds_no_model() -> None:
    """A model that the newest list does not have is unloaded, and gets no requests."""
    kit = Kit(loaded={"a"})
    kit.scrape()
    kit.names, kit.loaded = ("a", "d"), {"a", "d"}
    kit.scrape(0.25, listed_ago_s=1.0)
    assert set(kit.core.machine.models) == {"a", "b", "c"} and kit.open == {"a"}
    kit.scrape()
    assert set(kit.core.machine.models) == {"a", "d"} and kit.open == {"a", "d"}


def test_what_left_the_list_is_neither_retried_nor_waited_for() -> None:
    kit = Kit()
    kit.scrape()
    kit.want("b", retried=("b", "gone"))
    assert kit.next() == load("b")
    kit.names = ("a",)
    kit.scrape()
    kit.called(load("b"), "POST /models/load was answered with status 404")
    assert kit.next() is None and set(kit.core.machine.statuses) == {"a"}
    kit.want("a")
    assert kit.next() == load("a")


def test_a_list_that_began_during_a_call_does_not_end_it() -> None:
    """The router may have written it before it heard the call."""
    kit = about_to_swap()
    kit.now += 1.0
    kit.called(unload("a"))
    kit.loaded = set()
    kit.scrape(0.25, listed_ago_s=0.75)
    assert kit.state("a") is KeptState.UNLOADING
    kit.scrape()
    assert kit.state("a") is KeptState.UNLOADED
    assert kit.next() == load("b")
    kit.now += 1.0
    kit.called(load("b"))
    kit.scrape(0.25, listed_ago_s=0.75)
    assert kit.state("b") is KeptState.LOADING
    kit.scrape()
    assert kit.state("b") is KeptState.RESTARTING


@given(seed=st.integers(0, 2**32), max_models=st.integers(0, 3))
def test_no_answer_is_killed_whatever_is_wanted(seed: int, max_models: int) -> None:
    """A router that loads and unloads in random time, fails, and loses models; requests of ours
    begin where a model is open, and clients that bypass us take slots for less than the bound."""
    random = Random(seed)
    kit = Kit(max_models=max_models)
    running: RouterCall | None = None
    stopping: set[str] = set()
    for _ in range(300):
        dice = random.random()
        if dice < 0.3:
            kit.scrape(random.choice([0.05, 0.25, 1.0]))
        elif dice < 0.45:
            fits = max_models or 3
            kit.want(*random.sample(kit.names, random.randint(0, fits)))
        elif dice < 0.6:
            for name in kit.open & kit.loaded - stopping:
                kit.leases[name] = kit.leases.get(name, 0) + 1
        elif dice < 0.75:
            kit.leases = {name: random.randint(0, count) for name, count in kit.leases.items()}
        elif dice < 0.85 and kit.loading:
            name = kit.loading.pop()
            if random.random() < 0.8:
                kit.loaded.add(name)
        elif dice < 0.9 and stopping:
            name = stopping.pop()
            kit.loaded.discard(name)
        kit.busy = {name: count for name, count in kit.leases.items() if count}
        call = kit.next() if running is None else None
        if call is not None:
            running = call
        elif running is not None and random.random() < 0.5:
            call, running = running, None
            problem = random.choice(["", "", "rejected"])
            if not problem and call.action is RouterAction.UNLOAD:
                assert not kit.leases.get(call.model), "an answer would be killed"
                if call.model in kit.loading:
                    kit.loading.discard(call.model)
                elif call.model in kit.loaded:
                    stopping.add(call.model)
            elif not problem and call.model not in kit.loaded | kit.loading:
                kit.loading.add(call.model)
                used = len(kit.loaded | kit.loading)
                assert not max_models or used <= max_models, "the router would evict another one"
            kit.called(call, problem)
