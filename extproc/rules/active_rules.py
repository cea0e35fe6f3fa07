"""Asks the rules, within a budget.

A rule that raises, that answers what it may not, or that takes more than 2 ms, three times, is
switched off until the next reload: a broken rule must not break the picker. Requests go on without
the rule, as they do after each single error.

The system may take the processor away in the middle of any call. So a call that was slow counts for
a minute only, and during this minute the next one counts if the rule itself was at work for more
than 2 ms, or waited for something. To find that out costs more than a simple rule, so it is not
looked at before.
"""

import logging
import resource
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.request import CLIENT, Kind, Request, client_of
from extproc.rules import v1
from extproc.rules.loading import (
    LoadedRule,
    checked_admission,
    checked_cost,
    checked_verdict,
    text_of,
)

BUDGET_S: Final = 0.002
"""The longest time that one call may take: of `filter`, for all endpoints of one request."""
MAX_FAULTS: Final = 3
SLOW_FOR_S: Final = 60.0
"""How long a call that was slow counts."""
MAX_VIEWS: Final = 4096
"""Endpoints whose views are kept."""

log = logging.getLogger("coxswain.rules")


class Used(NamedTuple):
    """What this thread has used so far: seconds of a processor, and how often it waited."""

    processor_s: float
    waits: int


def _used() -> Used:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_nvcsw)


class _Rule:
    """A rule, and how it has done."""

    __slots__ = (
        "admit",
        "cost",
        "errors",
        "filter",
        "name",
        "off",
        "slow_at",
        "slow_calls",
        "watched_until",
    )

    def __init__(self, loaded: LoadedRule) -> None:
        self.name = loaded.name
        self.filter = loaded.filter
        self.cost = loaded.cost
        self.admit = loaded.admit
        self.errors = 0
        self.slow_calls = 0
        self.slow_at: deque[float] = deque(maxlen=MAX_FAULTS)
        self.watched_until = -inf
        self.off = ""
        """Why it is switched off; empty while it is not."""

    @property
    def problem(self) -> str:
        """That it is switched off and why, as a sentence."""
        return (
            f"the rule {self.name} is switched off, and requests go on without it: {self.off}; "
            "correct it and run `coxswain config reload`"
        )


class ActiveRules:
    """The rules of one load. No call raises."""

    def __init__(
        self,
        loaded: Iterable[LoadedRule],
        objectives: Collection[str] = (),
        clock: Callable[[], float] = time.perf_counter,
        unix_time: Callable[[], float] = time.time,
        used: Callable[[], Used] | None = None,
    ) -> None:
        self._rules = [_Rule(one) for one in loaded]
        self._objectives = frozenset(objectives)
        self._clock = clock
        self._unix_time = unix_time
        self._used = used or _used
        self._views: dict[Address, _EndpointView] = {}
        self._viewed: Request | None = None
        self._view = v1.Request()
        self.version = 0
        """Grows when a rule is switched off."""
        self._sort()

    def _sort(self) -> None:
        """Keep the rules that are on, by what they have."""
        on = [rule for rule in self._rules if not rule.off]
        self._filters = [rule for rule in on if rule.filter is not None]
        self._costs = [rule for rule in on if rule.cost is not None]
        self._admissions = [rule for rule in on if rule.admit is not None]
        self.has_filters = bool(self._filters)
        self.has_costs = bool(self._costs)

    # What the core and the request path ask

    def allowed(self, request: Request, endpoints: Iterable[Endpoint]) -> frozenset[Address] | None:
        """The endpoints that may serve the request by all filters; None if all of these may. Each
        filter is asked for all of them. O(filters x endpoints)."""
        asked = tuple(endpoints)
        excluded: set[Address] = set()
        for rule in tuple(self._filters):
            excluded.update(self._excluded(rule, request, asked))
        if not excluded:
            return None
        return frozenset(one.address for one in asked if one.address not in excluded)

    def why_not(self, request: Request, endpoint: Endpoint) -> list[str]:
        """Which filters exclude the endpoint, as text."""
        return [
            f"the rule {rule.name} excludes it{f': {reason}' if reason else ''}"
            for rule in tuple(self._filters)
            for reason in self._excluded(rule, request, (endpoint,)).values()
        ]

    def why_nowhere(self, request: Request, endpoints: Iterable[Endpoint]) -> str:
        """Why the filters leave none of these endpoints, as a sentence; empty if they leave one."""
        asked = tuple(endpoints)
        found: dict[str, dict[Address, str]] = {}
        for rule in tuple(self._filters):
            if excluded := self._excluded(rule, request, asked):
                found[rule.name] = excluded
        everywhere = set().union(*found.values()) if found else set()
        if not asked or len(everywhere) < len(asked):
            return ""
        for name, excluded in found.items():
            if len(excluded) == len(asked):
                reasons = dict.fromkeys(filter(None, excluded.values()))
                said = f": {'; '.join(list(reasons)[:3])}" if reasons else ""
                return f"the rule {name} excludes every endpoint that could serve it{said}"
        return f"the rules {', '.join(found)} exclude every endpoint that could serve it"

    def costs(self, request: Request, endpoint: Endpoint) -> Iterator[tuple[str, float]]:
        """The seconds that each rule adds at an endpoint, by the rule's name."""
        if not self._costs:
            return
        view, there = self._request_view(request), self._endpoint_view(endpoint)
        for rule in tuple(self._costs):
            assert rule.cost is not None
            began = self._begin(rule)
            try:
                seconds = checked_cost(rule.cost(view, there))
            except BaseException as error:  # noqa: BLE001 - it is not our code
                self._failed(rule, error)
                continue
            self._took(rule, began)
            yield rule.name, seconds

    def cost_s(self, request: Request, endpoint: Endpoint) -> float:
        """The seconds that all rules add at an endpoint."""
        return sum(seconds for _, seconds in self.costs(request, endpoint))

    def admit(self, request: Request) -> Request | str:
        """The request with the objective and the tenant that rules give it, or the reason for
        which one rejects it."""
        for rule in tuple(self._admissions):
            assert rule.admit is not None
            view = self._request_view(request)
            began = self._begin(rule)
            try:
                answer = checked_admission(rule.admit(view), self._objectives)
            except BaseException as error:  # noqa: BLE001 - it is not our code
                self._failed(rule, error)
                continue
            self._took(rule, began)
            match answer:
                case v1.Objective(name):
                    request = replace(request, objective=name)
                case v1.Tenant(name):
                    request = replace(request, tenant=f"{CLIENT}{name}")
                case v1.Reject(reason):
                    return reason
        return request

    # What operators see

    def problems(self) -> list[str]:
        """Which rules are switched off and why, as sentences."""
        return [rule.problem for rule in self._rules if rule.off]

    def faults(self) -> dict[tuple[str, ...], float]:
        """How often each rule failed and was slow, by its name and `error` or `slow`."""
        counted: dict[tuple[str, ...], float] = {}
        for rule in self._rules:
            counted[rule.name, "error"] = rule.errors
            counted[rule.name, "slow"] = rule.slow_calls
        return counted

    def states(self) -> dict[tuple[str, ...], float]:
        """1 for each rule that is on, 0 for one that is switched off."""
        return {(rule.name,): float(not rule.off) for rule in self._rules}

    # Within the budget

    def _excluded(
        self, rule: _Rule, request: Request, endpoints: tuple[Endpoint, ...]
    ) -> dict[Address, str]:
        """The endpoints that a filter excludes, with its reasons; none if it fails."""
        view, ask = self._request_view(request), rule.filter
        assert ask is not None
        there = [(one.address, self._endpoint_view(one)) for one in endpoints]
        excluded: dict[Address, str] = {}
        began = self._begin(rule)
        try:
            for address, endpoint in there:
                answer = ask(view, endpoint)
                if answer is not True:
                    verdict = checked_verdict(answer)
                    excluded[address] = verdict if isinstance(verdict, str) else ""
        except BaseException as error:  # noqa: BLE001 - it is not our code
            self._failed(rule, error)
            return {}
        self._took(rule, began)
        return excluded

    def _failed(self, rule: _Rule, error: BaseException) -> None:
        rule.errors += 1
        self._judge(rule, self._clock(), text_of(error))

    def _begin(self, rule: _Rule) -> tuple[float, Used | None]:
        """When a call begins; of a rule that was slow lately also what this thread has used."""
        began = self._clock()
        return began, self._used() if began < rule.watched_until else None

    def _took(self, rule: _Rule, began: tuple[float, Used | None]) -> None:
        began_at, before = began
        now = self._clock()
        if now - began_at <= BUDGET_S:
            return
        if before is not None:
            processor_s, waits = self._used()
            if processor_s - before.processor_s <= BUDGET_S and waits == before.waits:
                return  # the system had taken the processor away
        rule.slow_calls += 1
        rule.slow_at.append(now)
        rule.watched_until = now + SLOW_FOR_S
        took_ms = (now - began_at) * 1000
        self._judge(rule, now, f"it took {took_ms:.1f} ms, of {BUDGET_S * 1000:g} ms at most")

    def _judge(self, rule: _Rule, now: float, text: str) -> None:
        slow = sum(now - at < SLOW_FOR_S for at in rule.slow_at)
        if rule.off or rule.errors + slow < MAX_FAULTS:
            return
        rule.off = f"it failed or was slow {rule.errors + slow} times, at last: {text}"
        self.version += 1
        self._sort()
        log.error("%s", rule.problem)

    # Views

    def _request_view(self, request: Request) -> v1.Request:
        """What rules see of a request; made once for each."""
        if self._viewed is not request:
            tenant = request.tenant
            self._view = v1.Request(
                id=request.id,
                path=request.path,
                kind="embedding" if request.kind is Kind.EMBEDDING else "generation",
                model=request.model,
                adapter=request.adapter,
                objective=request.objective,
                tenant=client_of(tenant),
                fairness_id=request.fairness_id,
                session_id=request.session_id,
                prompt_tokens=request.prompt_tokens,
                max_tokens=request.max_tokens,
                slots=request.weight_slots,
                time=self._unix_time(),
                pool=request.pool,
            )
            self._viewed = request
        return self._view

    def _endpoint_view(self, endpoint: Endpoint) -> v1.Endpoint:
        """What rules see of an endpoint; made again when that has changed."""
        known = self._views.get(endpoint.address)
        if known is None or not known.shows(endpoint):
            if len(self._views) > MAX_VIEWS:
                self._views.clear()
            known = self._views[endpoint.address] = _EndpointView(endpoint)
        return known.view


class _EndpointView:
    """What rules see of an endpoint, and what it was made from."""

    __slots__ = ("_adapter_ids", "_context_tokens", "_models_by_name", "_runner", "_spec", "view")

    def __init__(self, endpoint: Endpoint) -> None:
        self._spec = endpoint.spec
        self._models_by_name = endpoint.models_by_name
        self._adapter_ids = endpoint.adapter_ids
        self._context_tokens = endpoint.context_tokens
        self._runner = endpoint.runner
        self.view = v1.Endpoint(
            name=endpoint.spec.name,
            address=str(endpoint.address),
            labels=MappingProxyType(dict(endpoint.spec.labels)),
            models=frozenset(endpoint.models_by_name),
            adapters=frozenset(endpoint.adapter_ids),
            context_tokens=endpoint.context_tokens,
            runner=endpoint.runner,
            pool=endpoint.spec.pool,
        )

    def shows(self, endpoint: Endpoint) -> bool:
        return (
            self._spec is endpoint.spec
            and self._models_by_name is endpoint.models_by_name
            and self._adapter_ids is endpoint.adapter_ids
            and self._context_tokens == endpoint.context_tokens
            and self._runner == endpoint.runner
        )
