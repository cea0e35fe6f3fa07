"""Claims about extproc/core/bounds.py."""

from __future__ import annotations

from extproc.core.bounds import Bound, BoundKind, BoundLimits, BoundOptions, Bounds, is_held_back

MODEL, PATH, OBJECTIVE = BoundKind.MODEL, BoundKind.PATH, BoundKind.OBJECTIVE
OPTIONS = BoundOptions(
    limits={
        (OBJECTIVE, "batch"): BoundLimits(running=2, queued=1),
        (MODEL, "tiny"): BoundLimits(running=1),
        (MODEL, "chat"): BoundLimits(queued=3),
        (PATH, "/v1/embeddings"): BoundLimits(queued=0),
    },
    paths={"/v1/embeddings": "/v1/embeddings", "/embeddings": "/v1/embeddings"},
)
ALIASES = {"small": "tiny"}


def found(bounds: Bounds, objective: str = "", *models: str | None, path: str = "/") -> list[str]:
    def canonical(name: str) -> str:
        return ALIASES.get(name, name)

    return [bound.name for bound in bounds.of(objective, models, path, canonical)]


def test_a_request_is_under_all_bounds_that_name_it() -> None:
    """By its objective, by any name of its model, and by any spelling of its path; always in the
    same order, as requests under equal bounds wait together."""
    bounds = Bounds(OPTIONS)
    assert found(bounds) == found(bounds, "other", "big", None, path="/x") == []
    everything = ["batch", "tiny", "chat", "/v1/embeddings"]
    assert found(bounds, "batch", "chat", "small", path="/embeddings") == everything
    assert found(bounds, "batch", "small", "chat", path="/v1/embeddings") == everything
    assert Bounds(BoundOptions()).is_empty and not bounds.is_empty


def test_a_bound_is_full_with_what_runs_and_what_slots_are_reserved_for() -> None:
    """It opens for queued requests without a reservation."""
    bound = named(Bounds(OPTIONS), "batch")
    bound.request_began()
    assert not is_held_back((bound,))
    bound.queued = 1
    bound.reserve()
    assert bound.is_full and is_held_back((bound,)) and bound.is_queue_full
    assert bound.description == "1 request of the objective batch runs and 1 is queued"
    bound.request_began()
    bound.queued = 2
    assert bound.description == "2 requests of the objective batch run and 2 are queued"


def test_only_a_bound_that_somebody_waits_for_opens() -> None:
    bounds = Bounds(OPTIONS)
    bound = named(bounds, "tiny")
    bound.request_began()
    bound.request_ended()
    assert bounds.opened == []
    bound.queued = 2
    bound.reserve()
    bound.unreserve()
    assert bounds.opened == [bound]


def test_limits_change_and_counts_stay() -> None:
    """A bound that is removed limits nobody, and is known until its requests have ended."""
    bounds = Bounds(OPTIONS)
    tiny = named(bounds, "tiny")
    tiny.request_began()
    bounds.renew(BoundOptions(limits={(MODEL, "tiny"): BoundLimits(running=3)}))
    assert named(bounds, "tiny") is tiny and (tiny.running, tiny.is_full) == (1, False)
    assert found(bounds, "batch", "tiny", path="/embeddings") == ["tiny"]
    bounds.renew(BoundOptions())
    assert bounds.is_empty and not tiny.is_full
    assert bounds.faults([(tiny,)], [], []) == []
    assert bounds.faults([], [], []) != []


def test_counts_are_derived_from_requests() -> None:
    bounds = Bounds(OPTIONS)
    batch, tiny = named(bounds, "batch"), named(bounds, "tiny")
    requests = ([(batch,), (batch, tiny)], [(tiny,)], [(tiny,)])
    (problem, other) = sorted(bounds.faults(*requests))
    assert problem.startswith("model tiny: (0, 0, 0) requests") and "(1, 1, 1) do" in problem
    assert other.startswith("objective batch")
    bounds.recount(*requests)
    assert bounds.faults(*requests) == []
    assert (tiny.running, tiny.queued, tiny.reserved) == (1, 1, 1)


def named(bounds: Bounds, name: str) -> Bound:
    return next(bound for bound in bounds if bound.name == name)
