"""Hierarchical weighted fair queueing by slot-seconds: who used less of the fleet goes first.

    class --> tenant: whose key it is --> flow: what it is for, as the tenant itself says

Start-time fair queueing (Goyal, Vin, Cheng 1996) among the tenants of a class, and again among
the flows of each tenant, so that a tenant gets no more of the fleet for the names that it gives
its requests. A `Share` has a virtual time, its used slot-seconds over its weight; the one with the
least is served next, and one that was away begins at the virtual time of its siblings, so absence
saves nothing up. A pick charges the expected use at once, or a tenant would take every slot before
its first bill; the release settles the difference. While nobody of a class, or of a tenant, waits,
nobody is kept waiting by it, so whenever the queue fills old use is forgotten, and each begins
anew with what it holds at that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from extproc.core.objective import Criticality

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.core.objective import Objective

MAX_FLOWS = 10_000
"""Beyond it, flows that neither wait nor run are forgotten: all at once, and again when there are
twice as many as were left, so that it costs each flow the same however many wait or run."""
MAX_TENANTS = 10_000
"""The same of tenants, whom no number of flows makes forgotten."""


class FlowKey(NamedTuple):
    """Whose use is counted together. Without a `tenant` each `fairness_id` is one."""

    criticality: Criticality
    objective: str
    tenant: str
    fairness_id: str


class Share:
    """The use of one of several siblings. Only `FairQueueing` writes it."""

    __slots__ = ("credit_s", "epoch", "held_s", "running", "virtual_s", "waiting", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.virtual_s = 0.0
        self.epoch = -1
        self.held_s = 0.0
        """Slot-seconds charged for what runs now."""
        self.credit_s = 0.0
        """Charged too much before: taken off the next charges, so virtual time never falls."""
        self.running = 0
        self.waiting = 0

    def bring_up(self, floor_s: float, epoch: int) -> None:
        """It begins to wait, where its siblings have come to `floor_s`."""
        if self.epoch != epoch and not self.waiting:
            self.epoch = epoch
            self.credit_s = 0.0
            self.virtual_s = floor_s + self.held_s / self.weight
        elif self.virtual_s < floor_s:
            self.virtual_s = floor_s

    def charge(self, slot_seconds: float) -> None:
        """One of its requests will use about so much."""
        self.running += 1
        self.held_s += slot_seconds
        spent = min(self.credit_s, slot_seconds)
        self.credit_s -= spent
        self.virtual_s += (slot_seconds - spent) / self.weight

    def settle(self, charged: float, used: float) -> None:
        """It ended: `used` slot-seconds instead of the `charged` ones."""
        self.running -= 1
        self.held_s = self.held_s - charged if self.running else 0.0
        self.credit_s += charged - used
        if self.credit_s < 0.0:
            self.virtual_s -= self.credit_s / self.weight
            self.credit_s = 0.0


class Tenant(Share):
    """Whose requests these are, within an objective. Its flows have a clock of their own."""

    __slots__ = ("clock_s", "contentions", "key")

    def __init__(self, key: FlowKey, weight: float) -> None:
        super().__init__(weight)
        self.key = key
        self.clock_s = 0.0
        """The virtual time of its flows."""
        self.contentions = 0
        """How often its requests began to wait."""


class Flow(Share):
    """What a tenant counts together. `virtual_s` compares with its other flows alone."""

    __slots__ = ("key", "tenant")

    def __init__(self, key: FlowKey, tenant: Tenant) -> None:
        super().__init__(1.0)
        self.key = key
        self.tenant = tenant


class FairQueueing:
    """The flows, their tenants, the virtual times of the classes. Every call is O(1), amortised."""

    def __init__(self) -> None:
        self._flows: dict[FlowKey, Flow] = {}
        self._tenants: dict[FlowKey, Tenant] = {}
        self._most_flows = MAX_FLOWS
        self._virtual_s = dict.fromkeys(Criticality, 0.0)
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._flows)

    def flows(self) -> Iterable[Flow]:
        """Every flow whose use is counted now."""
        return self._flows.values()

    def tenants(self) -> Iterable[Tenant]:
        """Everybody whose use is counted now."""
        return self._tenants.values()

    def recount_waiting(self, flows: Iterable[Flow]) -> None:
        """These are the flows of all requests that wait, each as often as it has some."""
        for share in (*self._flows.values(), *self._tenants.values()):
            share.waiting = 0
        for flow in flows:
            flow.waiting += 1
            flow.tenant.waiting += 1

    def recount_running(self, flows: Iterable[Flow]) -> None:
        """These are the flows of all requests that run, each as often as it has some."""
        for share in (*self._flows.values(), *self._tenants.values()):
            share.running = 0
        for flow in flows:
            flow.running += 1
            flow.tenant.running += 1

    def flow(self, objective: Objective, fairness_id: str, tenant: str = "") -> Flow:
        """The flow that a request of this objective and tenant belongs to."""
        key = FlowKey(objective.criticality, objective.name, tenant, fairness_id)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= self._most_flows:
                self._forget_idle()
            flow = self._flows[key] = Flow(key, self._tenant(key, objective))
        flow.tenant.weight = objective.weight
        return flow

    def peek(self, objective: Objective, fairness_id: str, tenant: str = "") -> Flow:
        """The same without a trace: an unknown flow or tenant is not remembered."""
        key = FlowKey(objective.criticality, objective.name, tenant, fairness_id)
        known = self._flows.get(key)
        if known is not None:
            return known
        of_tenant = _tenant_key(key)
        return Flow(key, self._tenants.get(of_tenant) or Tenant(of_tenant, objective.weight))

    def contention_began(self) -> None:
        """The queue was empty and a request enters it: from here on use is counted anew."""
        self._epoch += 1

    def entered(self, flow: Flow) -> None:
        """One of its requests begins to wait."""
        tenant = flow.tenant
        if tenant.waiting == 0:
            tenant.bring_up(self._virtual_s[tenant.key.criticality], self._epoch)
            tenant.contentions += 1
            tenant.clock_s = 0.0
        if flow.waiting == 0:
            flow.bring_up(tenant.clock_s, tenant.contentions)
        tenant.waiting += 1
        flow.waiting += 1

    def left(self, flow: Flow) -> None:
        """One of its requests waits no more."""
        flow.tenant.waiting -= 1
        flow.waiting -= 1

    def charge(self, flow: Flow, slot_seconds: float, *, has_waited: bool) -> None:
        """One of its requests was picked and will use about so much."""
        tenant = flow.tenant
        if has_waited:
            criticality = tenant.key.criticality
            self._virtual_s[criticality] = max(self._virtual_s[criticality], tenant.virtual_s)
            tenant.clock_s = max(tenant.clock_s, flow.virtual_s)
        tenant.charge(slot_seconds)
        flow.charge(slot_seconds)

    def settle(self, flow: Flow, charged: float, used: float) -> None:
        """It ended: `used` slot-seconds instead of the `charged` ones."""
        flow.tenant.settle(charged, used)
        flow.settle(charged, used)

    def debt_s(self, flow: Flow) -> float:
        """Slot-seconds (by weight) that its tenant is ahead of its class, as `explain` shows
        them."""
        tenant = flow.tenant
        if tenant.epoch != self._epoch:
            return tenant.held_s / tenant.weight
        return max(0.0, tenant.virtual_s - self._virtual_s[tenant.key.criticality])

    def _tenant(self, flow: FlowKey, objective: Objective) -> Tenant:
        key = _tenant_key(flow)
        tenant = self._tenants.get(key)
        if tenant is None:
            tenant = self._tenants[key] = Tenant(key, objective.weight)
        return tenant

    def _forget_idle(self) -> None:
        """A tenant whose flow is remembered is so, too: there is never a second one of its key."""
        self._flows = {key: flow for key, flow in self._flows.items() if _is_active(flow)}
        self._most_flows = max(MAX_FLOWS, 2 * len(self._flows))
        if len(self._tenants) >= MAX_TENANTS:
            self._tenants = {key: one for key, one in self._tenants.items() if _is_active(one)}


def _tenant_key(flow: FlowKey) -> FlowKey:
    return flow._replace(fairness_id="") if flow.tenant else flow


def _is_active(share: Share) -> bool:
    return bool(share.waiting or share.running)
