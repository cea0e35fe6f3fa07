"""Selects the endpoint with the lowest cost in seconds among a few candidates.

To score a thousand endpoints would cost more than it saves. Candidates are the least loaded
endpoints, those that processed the same beginning of a prompt, and the session's last one. A busy
endpoint whose cache would save more than the wait for it is the request's affinity target; for one
that would make a server load its model, so is a busy one that has it loaded: if the wait for a slot
there is shorter than a load, for as long as a load takes, else for a moment.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from extproc.core.address import Address
from extproc.core.fleet.membership import Fleet
from extproc.core.prediction.latency import LatencyModel, refresh_s
from extproc.core.prediction.prefix_cache import PrefixIndex
from extproc.core.prediction.sessions import Sessions
from extproc.core.request import Request, ResolvedRequest
from extproc.core.selection.cost import Cost, CostModel
from extproc.core.selection.ranking import Ranking
from extproc.core.selection.ranking_cache import MAX_RANKINGS, RankingCache
from extproc.core.selection.rules import Rules
from extproc.core.selection.usage_share import UsageShare
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit
from extproc.core.slots.ledger import Ledger
from extproc.core.slots.model_loading import ModelLoadTracker
from extproc.core.slots.model_pools import SlotPool, slot_pool
from extproc.core.slots.token_demand import TokenDemand, TokenDemands

LEAST_LOADED = 4
HOLDERS = 4
MAX_BY_RULES = 64
"""Candidates with a free slot where rules add to the costs: the least loaded need not be among the
cheapest then."""
PREFILL_WEIGHT = 3.0
"""The weight of a second of prefill against a second of waiting: while a llama-server processes a
prompt its other slots get no tokens, and the slot itself is in use for longer."""
ALIKE_S, ALIKE_SHARE = 0.05, 0.1
"""Costs that differ by less count as equal, because they are estimates: then the load decides."""
SESSION_SHARE = 0.25
"""The share by which the session's last endpoint may cost more than the best and is still used."""
MIN_AFFINITY_WAIT_S = 0.05
"""A smaller saving is not worth a wait."""
LOAD_PATIENCE_S = 0.25
"""How long a request waits for a server that has its model before another one loads it, too, if a
load is not known to take longer: the slot of an answer that ends just now, or whose client left, is
free by then."""

ENOUGH_SAMPLES = 5
"""The requests that must have ended at a server before a wait there is expected to be long."""


class AffinityTarget(NamedTuple):
    """A busy endpoint that is worth waiting for, and for how long at most."""

    address: Address
    max_wait_s: float


class Selection:
    """The selected endpoint, or a candidate, and its cost if that was computed: `cost_s` seconds in
    all. `is_late`: its first token comes too late, or its answer may be cut off. No named tuple:
    see `Cost`."""

    __slots__ = ("address", "cost", "cost_s", "is_late")

    def __init__(
        self, address: Address, cost: Cost | None = None, cost_s: float = 0.0, is_late: bool = False
    ) -> None:
        self.address = address
        self.cost = cost
        self.cost_s = cost_s
        self.is_late = is_late


def ttft_limit_s(resolved: ResolvedRequest, request: Request) -> float | None:
    """The SLO for its time to first token, in seconds: its own, or its objective's."""
    return request.ttft_s if request.ttft_s is not None else resolved.objective.ttft_s


class EndpointPicker:
    """Reads the state; changes nothing. O(candidates), independent of the size of the fleet."""

    def __init__(
        self,
        fleet: Fleet,
        ledger: Ledger,
        rankings: RankingCache,
        costs: CostModel,
        latency: LatencyModel,
        prefixes: PrefixIndex,
        sessions: Sessions,
        usage_share: UsageShare,
        pinned_at: Callable[[Address], int],
        demands: TokenDemands,
        model_loads: ModelLoadTracker,
    ) -> None:
        """`pinned_at` returns how many requests wait for one endpoint alone."""
        self._fleet = fleet
        self._ledger = ledger
        self._rankings = rankings
        self._costs = costs
        self._latency = latency
        self._prefixes = prefixes
        self._sessions = sessions
        self._usage_share = usage_share
        self._pinned_at = pinned_at
        self._demands = demands
        self._model_loads = model_loads
        self.rules: Rules | None = None
        """The operators' own; None without any."""
        self._fair_share: dict[Ranking, tuple[float, float]] = {}
        self._known_for: tuple[Request, float] | None = None
        self._known: list[Address] = []

    def choose(self, resolved: ResolvedRequest, request: Request, now: float) -> Selection | None:
        """The best endpoint that can take it at once, or None."""
        ranking = self._rankings.at(resolved.constraints)
        best = ranking.best_for(request.weight_slots)
        if best is None:
            return None
        demand: TokenDemand | None = None
        if self._ledger.shares_contexts:
            demand = self._demands.of(resolved, request, now)
        full: set[Address] = set()
        weighs = self.weighs(resolved, request) and len(ranking) > 1
        if weighs:
            selection = self._cheapest(best, ranking, resolved, request, demand, full, now)
            if selection is not None:
                return selection
        if demand is None:
            return Selection(best)
        roomy = self._with_room(best, ranking, resolved, request, demand, full)
        if roomy is None:
            return None
        selection = None
        if weighs and roomy != best:
            selection = self._cheapest(roomy, ranking, resolved, request, demand, full, now)
        return selection or Selection(roomy)

    def _cheapest(
        self,
        best: Address,
        ranking: Ranking,
        resolved: ResolvedRequest,
        request: Request,
        demand: TokenDemand | None,
        full: set[Address],
        now: float,
    ) -> Selection | None:
        """The cheapest of the candidates that has room for its tokens; the model must be loaded
        there if it is at the `best` one. Room costs more to find out than all else, so only the
        cheapest ones are asked for it, and those that are `full` never again."""
        has_costs = self.rules is not None and self.rules.has_costs
        most = MAX_BY_RULES if has_costs else LEAST_LOADED
        candidates = dict.fromkeys(ranking.free(most, request.weight_slots))
        if request.prompt_blocks or request.session_id is not None:
            for address in self._known_to(request, now):
                if address in ranking:
                    candidates[address] = None
        ttft_s = ttft_limit_s(resolved, request)
        _, _, is_loaded = self._pool(best, resolved)
        scored: list[Selection] = []
        for address in candidates:
            if address in full:
                continue
            pool, has_it_loaded = self._ledger.endpoint_slots(address), True
            if pool.model_pools:
                pool, _, has_it_loaded = self._pool(address, resolved)
            if not can_fit(request.weight_slots, pool.open_slots, pool.slots):
                continue
            if has_it_loaded is not is_loaded:
                continue  # no cache is worth loading a model for
            cost = self._cost(address, pool, request, ranking, now)
            is_late = ttft_s is not None and cost.first_token_s > ttft_s
            if request.max_tokens is not None and request.prompt_tokens is not None:
                most_tokens = request.prompt_tokens + request.max_tokens
                is_late = is_late or self._cuts_answer(most_tokens, address)
            scored.append(Selection(address, cost, cost.total_s, is_late))
        while scored:
            selection = None
            if request.session_id is not None:
                selection = self._session_selection(scored, request)
            if selection is None:
                selection = _least_loaded_of_the_cheapest(scored)
            if demand is None:
                return selection
            pool, _, _ = self._pool(selection.address, resolved)
            if pool.fits(request.weight_slots, demand):
                return selection
            full.add(selection.address)
            scored.remove(selection)
        return None

    def weighs(self, resolved: ResolvedRequest, request: Request) -> bool:
        """Whether endpoints may differ for the request by more than their load."""
        return (
            request.prompt_tokens is not None
            or bool(request.prompt_blocks)
            or request.session_id is not None
            or bool(request.adapter or request.adapter_numbers)
            or request.ttft_s is not None
            or resolved.objective.ttft_s is not None
            or (self.rules is not None and self.rules.has_costs)
        )

    def _with_room(
        self,
        best: Address,
        ranking: Ranking,
        resolved: ResolvedRequest,
        request: Request,
        demand: TokenDemand,
        full: set[Address],
    ) -> Address | None:
        """The best endpoint that is not known to be `full` and whose context has room for it:
        mostly the best one, as it has the most free slots. O(endpoints with free slots) if none
        has."""
        weight_slots = request.weight_slots
        if best not in full and self._pool(best, resolved)[0].fits(weight_slots, demand):
            return best
        full.add(best)
        for address in ranking.free(len(ranking), weight_slots):
            if address not in full and self._pool(address, resolved)[0].fits(weight_slots, demand):
                return address
        return None

    def _cuts_answer(self, most_tokens: int, address: Address) -> bool:
        """Whether an answer may be cut off there because the context ends, after `most_tokens` with
        its prompt: a worse endpoint, like one whose first token comes too late."""
        endpoint = self._fleet.get(address)
        context = None if endpoint is None else endpoint.context_tokens
        return context is not None and most_tokens > context

    def _session_selection(self, scored: list[Selection], request: Request) -> Selection | None:
        """The session's last endpoint, unless another one is clearly better for the request: by
        more than `SESSION_SHARE`, by its cache, or because only it meets the SLO."""
        last = self._sessions.last_endpoint(request.session_id)
        if last is None:
            return None
        same = next((one for one in scored if one.address == last), None)
        if same is None:
            return None
        cheapest = _cheapest_of(scored)
        endpoint = self._fleet.get(last)
        is_good_enough = (
            same.is_late == cheapest.is_late
            and same.cost_s <= (1.0 + SESSION_SHARE) * cheapest.cost_s + ALIKE_S
            and _saved_s(same) >= _saved_s(cheapest) - ALIKE_S
            and endpoint is not None
            and endpoint.is_first_choice
        )
        return same if is_good_enough else None

    def cost_at(
        self, resolved: ResolvedRequest, request: Request, address: Address, now: float
    ) -> Cost:
        """The cost of an endpoint as `choose` computes it, whether or not it has a free slot."""
        ranking = self._rankings.at(resolved.constraints)
        pool, _, _ = self._pool(address, resolved)
        return self._cost(address, pool, request, ranking, now)

    def affinity_target(
        self,
        resolved: ResolvedRequest,
        request: Request,
        offered: Address,
        now: float,
        *,
        waited_s: float = 0.0,
    ) -> AffinityTarget | None:
        """A busy endpoint that is worth waiting for instead of the offered one, for a request that
        has waited for `waited_s`."""
        if self._ledger.endpoint_slots(offered).model_pools:
            _, model, is_loaded = self._pool(offered, resolved)
            if model is not None and not is_loaded:
                return self._loaded_target(resolved, request, model, waited_s, now)
        if not request.prompt_blocks and request.session_id is None:
            return None
        ranking = self._rankings.at(resolved.constraints)
        here: Cost | None = None
        best: AffinityTarget | None = None
        best_s = 0.0
        for address in self._known_to(request, now):
            if address == offered or address not in ranking:
                continue
            pool, _, is_loaded = self._pool(address, resolved)
            if not pool.slots or not is_loaded:
                continue
            if self._has_room(pool, resolved, request, now):
                continue
            if here is None:
                used, _, _ = self._pool(offered, resolved)
                here = self._costs.cost(request, offered, used.slots - used.free_slots, now)
                self._add_rules(here, request, offered)
            there = self._cost(address, pool, request, ranking, now)
            saved_s = here.first_token_s - there.first_token_s
            max_wait_s = here.own_s - there.own_s + (PREFILL_WEIGHT - 1.0) * saved_s
            if max_wait_s < MIN_AFFINITY_WAIT_S:
                continue
            wait_s = self._wait_s(address, pool.slots, now)
            if wait_s - max_wait_s < best_s:
                best_s = wait_s - max_wait_s
                best = AffinityTarget(address, max_wait_s)
        return best

    def _loaded_target(
        self,
        resolved: ResolvedRequest,
        request: Request,
        model: str,
        waited_s: float,
        now: float,
    ) -> AffinityTarget | None:
        """The busy endpoint that has the model loaded and the shortest wait, if that is worth it;
        None if none has. O(endpoints).

        The wait is worth it while it is shorter than a load, or nothing is known of it, and is
        given up when it took as long: so a wait that was expected wrongly costs no more than a
        load. One with room for it is no target: it was not offered for a reason that time does not
        cure.
        """
        load_s = self._model_loads.usual_s(model)
        if not load_s and waited_s >= LOAD_PATIENCE_S:
            return None
        ranking = self._rankings.at(resolved.constraints)
        best: Address | None = None
        best_s = inf
        for address in ranking.best(len(ranking)):
            pool, _, is_loaded = self._pool(address, resolved)
            if not is_loaded or not pool.slots:
                continue
            if self._has_room(pool, resolved, request, now):
                continue
            is_known = self._latency.samples_of(address) >= ENOUGH_SAMPLES
            wait_s = self._wait_s(address, pool.slots, now) if is_known else 0.0
            if wait_s < best_s:
                best, best_s = address, wait_s
        if best is None:
            return None
        max_wait_s = load_s if best_s < load_s else LOAD_PATIENCE_S - waited_s
        return AffinityTarget(best, max_wait_s) if max_wait_s > 0.0 else None

    def _has_room(
        self, pool: EndpointSlots, resolved: ResolvedRequest, request: Request, now: float
    ) -> bool:
        """Whether it has an open slot, and tokens for the request if a context is shared."""
        if not pool.open_slots or pool.tokens is None:
            return pool.open_slots > 0
        return pool.fits(request.weight_slots, self._demands.of(resolved, request, now))

    def _wait_s(self, address: Address, slots: int, now: float) -> float:
        """Seconds until a slot there is free for one more: slots are freed one after another."""
        ahead = self._pinned_at(address)
        return self._latency.estimate(address, now).slot_s / slots * (ahead + 1)

    def _known_to(self, request: Request, now: float) -> list[Address]:
        """Endpoints that may have its beginning in their cache; called twice for most requests."""
        if (
            self._known_for is None
            or self._known_for[0] is not request
            or self._known_for[1] != now
        ):
            self._known_for = (request, now)
            self._known = self._prefixes.holders(request.prompt_blocks, HOLDERS)
            last = self._sessions.last_endpoint(request.session_id)
            if last is not None and last not in self._known:
                self._known.append(last)
        return self._known

    def _cost(
        self, address: Address, pool: EndpointSlots, request: Request, ranking: Ranking, now: float
    ) -> Cost:
        """Its cost there; a cache counts only while the endpoint is not used beyond its share."""
        cost = self._costs.cost(request, address, pool.slots - pool.free_slots, now)
        if cost.saved_s and self._usage_share.is_overused(
            address, pool.slots, self._fair(ranking, now), now
        ):
            cost.forgo_cache()
        if self.rules is not None:
            self._add_rules(cost, request, address)
        return cost

    def _add_rules(self, cost: Cost, request: Request, address: Address) -> None:
        if self.rules is not None and self.rules.has_costs:
            endpoint = self._fleet.get(address)
            assert endpoint is not None, "only members are ranked"
            cost.rules_s = self.rules.cost_s(request, endpoint)

    def _pool(self, address: Address, resolved: ResolvedRequest) -> SlotPool:
        endpoint = self._fleet.get(address)
        assert endpoint is not None, "only members are ranked"
        return slot_pool(endpoint, self._ledger.endpoint_slots(address), resolved.constraints.model)

    def _fair(self, ranking: Ranking, now: float) -> float:
        """The mean recent use of a slot in this ranking, recomputed at intervals."""
        known = self._fair_share.get(ranking)
        if known is None or now >= known[0]:
            if len(self._fair_share) > MAX_RANKINGS:
                self._fair_share.clear()
            known = (
                now + refresh_s(len(ranking)),
                self._usage_share.fair_share(ranking.members(), now),
            )
            self._fair_share[ranking] = known
        return known[1]


def _cheapest_of(scored: list[Selection]) -> Selection:
    """The first of the least cost; only candidates that meet the SLO, if any does."""
    cheapest = scored[0]
    for one in scored:
        if one.is_late is cheapest.is_late:
            if one.cost_s < cheapest.cost_s:
                cheapest = one
        elif cheapest.is_late:
            cheapest = one
    return cheapest


def _least_loaded_of_the_cheapest(scored: list[Selection]) -> Selection:
    """The first of about the least cost; only candidates that meet the SLO, if any does."""
    cheapest = _cheapest_of(scored)
    is_late, least_s = cheapest.is_late, cheapest.cost_s
    enough_s = least_s + max(ALIKE_S, ALIKE_SHARE * least_s)
    # The saving of a cache is no matter of estimates.
    saved_s = _saved_s(cheapest) - ALIKE_S
    for one in scored:
        if one.is_late is is_late and one.cost_s <= enough_s and _saved_s(one) >= saved_s:
            return one
    return cheapest


def _saved_s(selection: Selection) -> float:
    return 0.0 if selection.cost is None else selection.cost.saved_s
