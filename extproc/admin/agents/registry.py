"""The agents by address, and how long each has been silent. Pure: `now` is an argument.

    attach --> reporting --no message for ttl_s--> silent --forget_s--> removed
                  ^  \\--leave--> leaving --detach--> removed     |
                  +---------- a message, or attach again ---------+

One address has one agent. If the same agent (the same id) attaches again, its new stream replaces
the old one. So does another agent: usually it is the same one after a restart, and if two are
configured for one address, the newer one is meant. The replaced agent may return only when the
other one is silent, or the two would replace each other for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from extproc.admin.call_errors import already, at_limit
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.security.trust import Trust

MAX_AGENTS: Final = 10_000
MAX_REPLACED: Final = 16


@dataclass(slots=True, eq=False)
class Agent:
    """The agent of one address. `stream` is the number of its stream, None between two."""

    spec: EndpointSpec
    agent_id: str
    heard_at: float
    stream: int | None = None
    trust: Trust | None = None
    is_silent: bool = False
    is_leaving: bool = False
    replaced: dict[str, None] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        return self.spec.address


class AgentRegistry:
    """All agents by address. Synchronous."""

    def __init__(self, ttl_s: float, forget_s: float) -> None:
        self.ttl_s = ttl_s
        self.forget_s = forget_s
        self._agents: dict[Address, Agent] = {}

    def __len__(self) -> int:
        return len(self._agents)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def get(self, address: Address) -> Agent | None:
        return self._agents.get(address)

    def is_reporting(self, address: Address) -> bool:
        """Whether an agent reports the address now."""
        agent = self._agents.get(address)
        return agent is not None and not agent.is_silent

    def specs(self) -> list[EndpointSpec]:
        """The endpoints of all agents."""
        return [agent.spec for agent in self._agents.values() if not agent.is_leaving]

    def attach(
        self,
        spec: EndpointSpec,
        agent_id: str,
        stream: int,
        now: float,
        trust: Trust | None = None,
    ) -> tuple[Agent, bool]:
        """An agent attached on `stream`, which replaces any other stream of its address.

        Returns it, and whether it replaced another one that was alive. Raises `CallError` if
        that one must stay, or there are too many agents.
        """
        known = self._agents.get(spec.address)
        if known is None:
            if len(self._agents) >= MAX_AGENTS:
                raise at_limit(f"{MAX_AGENTS} agents are attached already, which is the limit")
            agent = Agent(spec, agent_id, now, stream, trust)
            self._agents[spec.address] = agent
            return agent, False
        is_other = known.agent_id != agent_id
        is_alive = known.stream is not None and not known.is_silent
        if is_other:
            if agent_id in known.replaced and is_alive:
                raise already(f"another agent reports {spec.address} already; run only one")
            known.replaced[known.agent_id] = None
            known.replaced.pop(agent_id, None)
            while len(known.replaced) > MAX_REPLACED:
                del known.replaced[next(iter(known.replaced))]
        known.spec, known.trust = spec, trust
        known.agent_id = agent_id
        known.stream = stream
        known.heard_at = now
        known.is_silent = known.is_leaving = False
        return known, is_other and is_alive

    def heard(self, agent: Agent, now: float) -> bool:
        """Record a message; returns whether the agent had been silent."""
        was_silent = agent.is_silent
        agent.heard_at = now
        agent.is_silent = False
        return was_silent

    def leave(self, agent: Agent) -> None:
        """Deregister: its endpoint leaves the fleet, its observations still count."""
        agent.is_leaving = True

    def detach(self, agent: Agent, stream: int) -> bool:
        """Its stream ended; returns whether the agent was removed. A later stream is not
        affected, nor an agent that attached to its address after the removal.

        Unless it deregistered, it stays: it is expected to reconnect.
        """
        if agent.stream != stream:
            return False
        agent.stream = None
        if not agent.is_leaving or self._agents.get(agent.address) is not agent:
            return False
        del self._agents[agent.address]
        return True

    def expire(self, now: float) -> tuple[list[Agent], list[Agent]]:
        """The agents that have just become silent, and those that are removed."""
        silent, forgotten = [], []
        for agent in list(self._agents.values()):
            silence_s = now - agent.heard_at
            if silence_s > self.forget_s or (agent.is_leaving and silence_s > self.ttl_s):
                del self._agents[agent.address]
                forgotten.append(agent)
            elif silence_s > self.ttl_s and not agent.is_silent:
                agent.is_silent = True
                silent.append(agent)
        return silent, forgotten

    def extend_deadlines(self, seconds: float) -> None:
        """Ignore a time during which our own event loop was blocked."""
        for agent in self._agents.values():
            agent.heard_at += seconds
