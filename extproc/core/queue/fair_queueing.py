"""Hierarchical weighted fair queueing by slot-seconds: the least use is served first.

    criticality --> tenant (identified by its key) --> flow (named by the tenant)

Start-time fair queueing (Goyal, Vin, Cheng 1996) among the tenants of a criticality, and again
among the flows of each tenant, so that a tenant gains nothing by using many flow names. A `Share`
has a virtual time: its used slot-seconds divided by its weight. The share with the least is served
next. A share that was absent begins at the virtual time of its siblings, so absence saves nothing
up. A pick charges the expected use at once, because a tenant could otherwise take every slot before
its first charge; the release settles the difference. While no request of a criticality, or of a
tenant, is queued, it delays nobody. So whenever the queue fills, old use is forgotten and each
share begins with what it holds at that moment.
"""

from collections.abc import Iterable
from typing import NamedTuple

from extproc.core.constraints import NO_POOL
from extproc.core.objective import Criticality, Objective

MAX_FLOWS = 10_000
"""Above this, flows without queued or running requests are forgotten: all at once, and again at
twice the remaining number, so that the cost for each flow is constant."""
MAX_TENANTS = 10_000
"""The same for tenants, which are forgotten independently of the number of flows."""


class FlowKey(NamedTuple):
    """The key by which use is counted. Without a `tenant` each `fairness_id` is a tenant."""

    criticality: Criticality
    objective: str
    tenant: str
    fairness_id: str
    pool: str = NO_POOL


PlainFlowKey = tuple[Criticality, str, str, str, str]
"""The fields of a `FlowKey`."""


class Share:
    """The use of one of several siblings. Only `FairQueueing` changes it."""

    __slots__ = ("credit_s", "epoch", "held_s", "running", "virtual_s", "waiting", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.virtual_s = 0.0
        self.epoch = -1
        self.held_s = 0.0
        """Slot-seconds charged for running requests."""
        self.credit_s = 0.0
        """Excess of earlier charges: deducted from the next ones, so virtual time never falls."""
        self.running = 0
        self.waiting = 0

    def bring_up(self, floor_s: float, epoch: int) -> None:
        """Its first request is queued while the virtual time of its siblings is `floor_s`."""
        if self.epoch != epoch and not self.waiting:
            self.epoch = epoch
            self.credit_s = 0.0
            self.virtual_s = floor_s + self.held_s / self.weight
        elif self.virtual_s < floor_s:
            self.virtual_s = floor_s

    def charge(self, slot_seconds: float) -> None:
        """A request begins, with this expected use."""
        self.running += 1
        self.held_s += slot_seconds
        spent = min(self.credit_s, slot_seconds)
        self.credit_s -= spent
        self.virtual_s += (slot_seconds - spent) / self.weight

    def settle(self, charged: float, used: float) -> None:
        """A request ended: it used `used` slot-seconds instead of the `charged` ones."""
        self.running -= 1
        self.held_s = self.held_s - charged if self.running else 0.0
        self.credit_s += charged - used
        if self.credit_s < 0.0:
            self.virtual_s -= self.credit_s / self.weight
            self.credit_s = 0.0


class Tenant(Share):
    """A tenant within an objective. Its flows have their own clock."""

    __slots__ = ("clock_s", "contentions", "key")

    def __init__(self, key: FlowKey, weight: float) -> None:
        super().__init__(weight)
        self.key = key
        self.clock_s = 0.0
        """The virtual time of its flows."""
        self.contentions = 0
        """How often its requests began to queue."""


class Flow(Share):
    """A flow of a tenant. `virtual_s` compares only with the tenant's other flows."""

    __slots__ = ("key", "tenant")

    def __init__(self, key: FlowKey, tenant: Tenant) -> None:
        super().__init__(1.0)
        self.key = key
        self.tenant = tenant


class FairQueueing:
    """Flows, tenants and the virtual time of each criticality. Every call is O(1), amortised."""

    def __init__(self) -> None:
        self._flows: dict[PlainFlowKey, Flow] = {}
        self._tenants: dict[FlowKey, Tenant] = {}
        self._most_flows = MAX_FLOWS
        self._virtual_s: dict[tuple[Criticality, str], float] = {}
        """By criticality and pool: no use in one pool counts in another."""
        self._epochs: dict[str, int] = {}
        """By pool: how often its queue began to fill."""

    def __len__(self) -> int:
        return len(self._flows)

    def flows(self) -> Iterable[Flow]:
        """Every flow that is remembered."""
        return self._flows.values()

    def tenants(self) -> Iterable[Tenant]:
        """Every tenant that is remembered."""
        return self._tenants.values()

    def recount_waiting(self, flows: Iterable[Flow]) -> None:
        """Recount from the flows of all queued requests, one entry for each request."""
        for share in (*self._flows.values(), *self._tenants.values()):
            share.waiting = 0
        for flow in flows:
            flow.waiting += 1
            flow.tenant.waiting += 1

    def recount_running(self, flows: Iterable[Flow]) -> None:
        """Recount from the flows of all running requests, one entry for each request."""
        for share in (*self._flows.values(), *self._tenants.values()):
            share.running = 0
        for flow in flows:
            flow.running += 1
            flow.tenant.running += 1

    def flow(self, objective: Objective, fairness_id: str, tenant: str = "") -> Flow:
        """The flow of a request with this objective and tenant; created if it is unknown."""
        # A plain tuple equals a named one, and is made faster.
        flow = self._flows.get(
            (objective.criticality, objective.name, tenant, fairness_id, objective.pool)
        )
        if flow is None:
            key = FlowKey(
                objective.criticality, objective.name, tenant, fairness_id, objective.pool
            )
            if len(self._flows) >= self._most_flows:
                self._forget_idle()
            flow = self._flows[key] = Flow(key, self._tenant(key, objective))
        flow.tenant.weight = objective.weight
        return flow

    def peek(self, objective: Objective, fairness_id: str, tenant: str = "") -> Flow:
        """The same without side effects: an unknown flow or tenant is not remembered."""
        key = FlowKey(objective.criticality, objective.name, tenant, fairness_id, objective.pool)
        known = self._flows.get(key)
        if known is not None:
            return known
        of_tenant = _tenant_key(key)
        return Flow(key, self._tenants.get(of_tenant) or Tenant(of_tenant, objective.weight))

    def contention_began(self, pool: str = NO_POOL) -> None:
        """No request for the pool was queued, and one is now: use is counted from here."""
        self._epochs[pool] = self._epochs.get(pool, 0) + 1

    def entered(self, flow: Flow) -> None:
        """A request of the flow was queued."""
        tenant = flow.tenant
        if tenant.waiting == 0:
            tenant.bring_up(self._virtual_s_of(tenant), self._epoch_of(tenant))
            tenant.contentions += 1
            tenant.clock_s = 0.0
        if flow.waiting == 0:
            flow.bring_up(tenant.clock_s, tenant.contentions)
        tenant.waiting += 1
        flow.waiting += 1

    def left(self, flow: Flow) -> None:
        """A request of the flow left the queue."""
        flow.tenant.waiting -= 1
        flow.waiting -= 1

    def charge(self, flow: Flow, slot_seconds: float, *, has_waited: bool) -> None:
        """A request of the flow was picked, with this expected use."""
        tenant = flow.tenant
        if has_waited:
            key = tenant.key.criticality, tenant.key.pool
            self._virtual_s[key] = max(self._virtual_s_of(tenant), tenant.virtual_s)
            tenant.clock_s = max(tenant.clock_s, flow.virtual_s)
        tenant.charge(slot_seconds)
        flow.charge(slot_seconds)

    def settle(self, flow: Flow, charged: float, used: float) -> None:
        """A request ended: it used `used` slot-seconds instead of the `charged` ones."""
        flow.tenant.settle(charged, used)
        flow.settle(charged, used)

    def debt_s(self, flow: Flow) -> float:
        """Weighted slot-seconds that the tenant is ahead of its criticality, for `explain`."""
        tenant = flow.tenant
        if tenant.epoch != self._epoch_of(tenant):
            return tenant.held_s / tenant.weight
        return max(0.0, tenant.virtual_s - self._virtual_s_of(tenant))

    def _virtual_s_of(self, tenant: Tenant) -> float:
        """The virtual time of the criticality of a tenant, in its pool."""
        return self._virtual_s.get((tenant.key.criticality, tenant.key.pool), 0.0)

    def _epoch_of(self, tenant: Tenant) -> int:
        return self._epochs.get(tenant.key.pool, 0)

    def _tenant(self, flow: FlowKey, objective: Objective) -> Tenant:
        key = _tenant_key(flow)
        tenant = self._tenants.get(key)
        if tenant is None:
            tenant = self._tenants[key] = Tenant(key, objective.weight)
        return tenant

    def _forget_idle(self) -> None:
        """The tenant of a remembered flow is kept: no key has two tenants."""
        self._flows = {key: flow for key, flow in self._flows.items() if _is_active(flow)}
        self._most_flows = max(MAX_FLOWS, 2 * len(self._flows))
        if len(self._tenants) >= MAX_TENANTS:
            self._tenants = {
                key: tenant for key, tenant in self._tenants.items() if _is_active(tenant)
            }


def _tenant_key(flow: FlowKey) -> FlowKey:
    return flow._replace(fairness_id="") if flow.tenant else flow


def _is_active(share: Share) -> bool:
    return bool(share.waiting or share.running)
