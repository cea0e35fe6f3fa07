"""Which endpoint for this request: the cheapest in seconds, of a few that are worth a look.

Scoring a thousand endpoints would cost more than it saves. Worth a look are the least loaded
ones, those that were asked to read the same beginning, and the session's last one. A busy
endpoint whose cache would save more than the wait for it is the request's home.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from extproc.core.prediction.latency import refresh_s
from extproc.core.selection.ranking_cache import MAX_RANKINGS
from extproc.core.slots.endpoint_slots import can_fit
from extproc.core.slots.model_pools import slot_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from extproc.core.address import Address
    from extproc.core.fleet.membership import Fleet
    from extproc.core.prediction.latency import LatencyModel
    from extproc.core.prediction.prefix_cache import PrefixIndex
    from extproc.core.prediction.sessions import Sessions
    from extproc.core.request import Request
    from extproc.core.resolved_request import ResolvedRequest
    from extproc.core.selection.cost import Cost, CostModel
    from extproc.core.selection.ranking import Ranking
    from extproc.core.selection.ranking_cache import RankingCache
    from extproc.core.selection.usage_share import UsageShare
    from extproc.core.slots.endpoint_slots import EndpointSlots
    from extproc.core.slots.ledger import Ledger
    from extproc.core.slots.model_pools import SlotPool

LEAST_LOADED = 4
HOLDERS = 4
PREFILL_WEIGHT = 3.0
"""What a second of reading counts against a second of waiting: while a llama-server reads a
prompt its other slots get no tokens, and the slot itself is taken for longer."""
ALIKE_S, ALIKE_SHARE = 0.05, 0.1
"""Costs that differ by less are alike, for they are estimates: then the load decides."""
SESSION_SHARE = 0.25
"""How much more than the best one the session's last endpoint may cost, and still keeps it."""
MIN_AFFINITY_WAIT_S = 0.05
"""A saving below this is not worth a wait."""


class AffinityTarget(NamedTuple):
    """A busy endpoint that is worth waiting for, and for how long at most."""

    address: Address
    max_wait_s: float


class Selection(NamedTuple):
    """Where a request goes now, and what that costs if it was worked out."""

    address: Address
    cost: Cost | None = None


class ScoredSelection(NamedTuple):
    """A candidate with what it would cost."""

    is_late: bool
    cost_s: float
    choice: Selection


def has_preferences(order: ResolvedRequest, request: Request) -> bool:
    """Whether one endpoint may be better for it than another by more than its load."""
    return (
        request.prompt_tokens is not None
        or bool(request.prompt_blocks)
        or request.session_id is not None
        or request.adapters is not None
        or ttft_limit_s(order, request) is not None
    )


def ttft_limit_s(order: ResolvedRequest, request: Request) -> float | None:
    """Within how many seconds its first token is to come: its own promise, or its objective's."""
    return request.ttft_s if request.ttft_s is not None else order.objective.ttft_s


class EndpointPicker:
    """Reads the state; changes nothing. O(candidates), whatever the size of the fleet."""

    def __init__(
        self,
        fleet: Fleet,
        ledger: Ledger,
        views: RankingCache,
        scorer: CostModel,
        timing: LatencyModel,
        prefixes: PrefixIndex,
        sessions: Sessions,
        spread: UsageShare,
        pinned_at: Callable[[Address], int],
    ) -> None:
        """`pinned_at` says how many requests wait for one endpoint alone."""
        self._fleet = fleet
        self._ledger = ledger
        self._rankings = views
        self._costs = scorer
        self._latency = timing
        self._prefixes = prefixes
        self._sessions = sessions
        self._usage_share = spread
        self._pinned_at = pinned_at
        self._fair_share: dict[Ranking, tuple[float, float]] = {}
        self._asked: tuple[Request, float] | None = None
        self._known: list[Address] = []

    def choose(self, order: ResolvedRequest, request: Request, now: float) -> Selection | None:
        """The best endpoint that can take it at once, or None."""
        picker = self._rankings.at(order.constraints)
        best = picker.best_for(request.weight_slots)
        if best is None:
            return None
        if len(picker) == 1 or not has_preferences(order, request):
            return Selection(best)
        candidates = dict.fromkeys(picker.free(LEAST_LOADED, request.weight_slots))
        candidates.update(dict.fromkeys(self._known_to(request, now)))
        ttft_s = ttft_limit_s(order, request)
        is_loaded = self._pool(best, order).is_loaded
        scored: list[ScoredSelection] = []
        for address in candidates:
            if address not in picker:
                continue
            pool, _, has_it_loaded = self._pool(address, order)
            if not can_fit(request.weight_slots, pool.open_slots, pool.slots):
                continue
            if has_it_loaded is not is_loaded:
                continue  # no cache is worth loading a model for
            cost = self._cost(address, pool, request, picker, now)
            is_late = ttft_s is not None and cost.first_token_s > ttft_s
            scored.append(ScoredSelection(is_late, cost.total_s, Selection(address, cost)))
        if not scored:
            return Selection(best)
        return self._session_kept(scored, request) or _least_loaded_of_the_cheapest(scored)

    def _session_kept(self, scored: list[ScoredSelection], request: Request) -> Selection | None:
        """The session's last endpoint, unless another one is clearly better for the request: by
        more than `SESSION_SHARE`, by what is in its cache, or because it keeps the promise."""
        home = self._sessions.home(request.session_id)
        if home is None:
            return None
        kept = next((one for one in scored if one.choice.address == home), None)
        if kept is None:
            return None
        cheapest = min(scored, key=_by_cost)
        endpoint = self._fleet.get(home)
        is_kept = (
            kept.is_late == cheapest.is_late
            and kept.cost_s <= (1.0 + SESSION_SHARE) * cheapest.cost_s + ALIKE_S
            and _saved_s(kept.choice) >= _saved_s(cheapest.choice) - ALIKE_S
            and endpoint is not None
            and endpoint.is_first_choice
        )
        return kept.choice if is_kept else None

    def cost_at(
        self, order: ResolvedRequest, request: Request, address: Address, now: float
    ) -> Cost:
        """What a choice counts for an endpoint, whether or not it has a slot free."""
        picker = self._rankings.at(order.constraints)
        return self._cost(address, self._slots(address, order), request, picker, now)

    def affinity_target(
        self, order: ResolvedRequest, request: Request, offered: Address, now: float
    ) -> AffinityTarget | None:
        """A busy endpoint that is worth waiting for instead of the one that is offered."""
        if not request.prompt_blocks and request.session_id is None:
            return None
        picker = self._rankings.at(order.constraints)
        here: Cost | None = None
        best: AffinityTarget | None = None
        best_s = 0.0
        for address in self._known_to(request, now):
            if address == offered or address not in picker:
                continue
            pool, _, is_loaded = self._pool(address, order)
            if pool.open_slots or not pool.slots or not is_loaded:
                continue
            if here is None:
                used = self._slots(offered, order)
                here = self._costs.cost(request, offered, used.slots - used.free_slots, now)
            there = self._cost(address, pool, request, picker, now)
            spared_s = here.first_token_s - there.first_token_s
            patience_s = here.total_s - there.total_s + (PREFILL_WEIGHT - 1.0) * spared_s
            if patience_s < MIN_AFFINITY_WAIT_S:
                continue
            wait_s = self._wait_s(address, pool.slots, now)
            if wait_s - patience_s < best_s:
                best_s = wait_s - patience_s
                best = AffinityTarget(address, patience_s)
        return best

    def _wait_s(self, address: Address, slots: int, now: float) -> float:
        """Until a slot there is free for one more: services end at random, one after another."""
        ahead = self._pinned_at(address)
        return self._latency.estimate(address, now).slot_s / slots * (ahead + 1)

    def _known_to(self, request: Request, now: float) -> list[Address]:
        """Endpoints that may have its beginning in their cache; asked twice for most requests."""
        if self._asked is None or self._asked[0] is not request or self._asked[1] != now:
            self._asked = (request, now)
            self._known = self._prefixes.holders(request.prompt_blocks, HOLDERS)
            home = self._sessions.home(request.session_id)
            if home is not None and home not in self._known:
                self._known.append(home)
        return self._known

    def _cost(
        self, address: Address, pool: EndpointSlots, request: Request, picker: Ranking, now: float
    ) -> Cost:
        """Its cost there; what it would save counts only while it is not used beyond its share."""
        cost = self._costs.cost(request, address, pool.slots - pool.free_slots, now)
        if cost.saved_s and self._usage_share.is_overused(
            address, pool.slots, self._fair(picker, now), now
        ):
            uncached_s = cost.first_token_s + cost.saved_s
            return cost._replace(first_token_s=uncached_s, saved_s=0.0, forgone_s=cost.saved_s)
        return cost

    def _slots(self, address: Address, order: ResolvedRequest) -> EndpointSlots:
        return self._pool(address, order).slots

    def _pool(self, address: Address, order: ResolvedRequest) -> SlotPool:
        endpoint = self._fleet.get(address)
        assert endpoint is not None, "only members are ranked"
        return slot_pool(endpoint, self._ledger.endpoint_slots(address), order.constraints.model)

    def _fair(self, picker: Ranking, now: float) -> float:
        """What a slot of this ranking was given on average, worked out once in a while."""
        known = self._fair_share.get(picker)
        if known is None or now >= known[0]:
            if len(self._fair_share) > MAX_RANKINGS:
                self._fair_share.clear()
            known = (
                now + refresh_s(len(picker)),
                self._usage_share.fair_share(picker.members(), now),
            )
            self._fair_share[picker] = known
        return known[1]


def _by_cost(one: ScoredSelection) -> tuple[bool, float]:
    return one.is_late, one.cost_s


def _least_loaded_of_the_cheapest(scored: list[ScoredSelection]) -> Selection:
    """Of those that keep the promise, if any does, the first that costs about the least."""
    is_late, least_s, cheapest = min(scored, key=_by_cost)
    enough_s = least_s + max(ALIKE_S, ALIKE_SHARE * least_s)
    saved_s = _saved_s(cheapest) - ALIKE_S  # what a cache spares is no matter of estimates
    return next(
        choice
        for late, cost_s, choice in scored
        if late == is_late and cost_s <= enough_s and _saved_s(choice) >= saved_s
    )


def _saved_s(choice: Selection) -> float:
    return 0.0 if choice.cost is None else choice.cost.saved_s
