"""Weighted fair queueing by slot-seconds: who used less of the fleet goes first.

Start-time fair queueing (Goyal, Vin, Cheng 1996). Each flow has a virtual time, its used
slot-seconds over its weight; the flow with the least is served next, and one that was away
begins at the virtual time of its class, so absence saves nothing up. A pick charges the
expected use at once, or a tenant would take every slot before its first bill; the release
settles the difference. While the line is empty nobody is kept waiting, so whenever it fills
old use is forgotten, and a flow begins anew with what it holds at that moment.
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


class FlowKey(NamedTuple):
    """Whose use is counted together: a tenant within an objective."""

    criticality: Criticality
    objective: str
    fairness_id: str


class Flow:
    """One tenant's use. Only `Fairness` writes it."""

    __slots__ = ("credit_s", "epoch", "held_s", "key", "running", "virtual_s", "waiting", "weight")

    def __init__(self, key: FlowKey, weight: float) -> None:
        self.key = key
        self.weight = weight
        self.virtual_s = 0.0
        self.epoch = -1
        self.held_s = 0.0
        """Slot-seconds charged for what runs now."""
        self.credit_s = 0.0
        """Charged too much before: taken off the next charges, so virtual time never falls."""
        self.running = 0
        self.waiting = 0


class Fairness:
    """The flows and the virtual times of the classes. Every call is O(1), amortised."""

    def __init__(self) -> None:
        self._flows: dict[FlowKey, Flow] = {}
        self._most_flows = MAX_FLOWS
        self._virtual_s = dict.fromkeys(Criticality, 0.0)
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._flows)

    def flows(self) -> Iterable[Flow]:
        """Everybody whose use is counted now."""
        return self._flows.values()

    def flow(self, objective: Objective, fairness_id: str) -> Flow:
        """The flow that a request of this objective and tenant belongs to."""
        key = FlowKey(objective.criticality, objective.name, fairness_id)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= self._most_flows:
                self._forget_idle()
            flow = self._flows[key] = Flow(key, objective.weight)
        flow.weight = objective.weight
        return flow

    def peek(self, objective: Objective, fairness_id: str) -> Flow:
        """The same without a trace: an unknown flow is not remembered."""
        key = FlowKey(objective.criticality, objective.name, fairness_id)
        return self._flows.get(key) or Flow(key, objective.weight)

    def contention_began(self) -> None:
        """The line was empty and somebody enters it: from here on use is counted anew."""
        self._epoch += 1

    def entered(self, flow: Flow) -> None:
        """One of its requests begins to wait."""
        if flow.waiting == 0:
            self._bring_up(flow)
        flow.waiting += 1

    def left(self, flow: Flow) -> None:
        """One of its requests waits no more."""
        flow.waiting -= 1

    def charge(self, flow: Flow, slot_seconds: float, *, has_waited: bool) -> None:
        """One of its requests was picked and will use about so much."""
        if has_waited:
            criticality = flow.key.criticality
            self._virtual_s[criticality] = max(self._virtual_s[criticality], flow.virtual_s)
        flow.running += 1
        flow.held_s += slot_seconds
        spent = min(flow.credit_s, slot_seconds)
        flow.credit_s -= spent
        flow.virtual_s += (slot_seconds - spent) / flow.weight

    def settle(self, flow: Flow, charged: float, used: float) -> None:
        """It ended: `used` slot-seconds instead of the `charged` ones."""
        flow.running -= 1
        flow.held_s = flow.held_s - charged if flow.running else 0.0
        flow.credit_s += charged - used
        if flow.credit_s < 0.0:
            flow.virtual_s -= flow.credit_s / flow.weight
            flow.credit_s = 0.0

    def debt_s(self, flow: Flow) -> float:
        """Slot-seconds (by weight) that it is ahead of its class, as `explain` shows them."""
        if flow.epoch != self._epoch:
            return flow.held_s / flow.weight
        return max(0.0, flow.virtual_s - self._virtual_s[flow.key.criticality])

    def _bring_up(self, flow: Flow) -> None:
        floor = self._virtual_s[flow.key.criticality]
        if flow.epoch != self._epoch and not flow.waiting:
            flow.epoch = self._epoch
            flow.credit_s = 0.0
            flow.virtual_s = floor + flow.held_s / flow.weight
        elif flow.virtual_s < floor:
            flow.virtual_s = floor

    def _forget_idle(self) -> None:
        self._flows = {
            key: flow for key, flow in self._flows.items() if flow.waiting or flow.running
        }
        self._most_flows = max(MAX_FLOWS, 2 * len(self._flows))
