"""Detects agents that have become silent, and half-open streams."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

import grpc

from extproc.admin.agents.dependencies import AgentsDependencies
from extproc.admin.agents.registry import Agent, AgentRegistry
from extproc.admin.agents.stream import AgentStream
from extproc.core.observation import Issue, Observation, ScrapeStatus

SWEEP_S: Final = 0.25
NUMBER_EVERY_S: Final = 2.0
"""The longest time between two messages to an agent, which takes silence for a dead connection."""
DEAF_AFTER_S: Final = 1.0
"""A sweep that is later than this shows that our own event loop was blocked."""
CLOSE_AFTER_S: Final = 30.0
"""A stream without a message for this time is half open."""

log = logging.getLogger("coxswain.agents")


class AgentLiveness:
    """Sweeps while there is an agent or a stream; calls `forgot` after agents were removed.

    Belongs to one event loop.
    """

    def __init__(
        self,
        dependencies: AgentsDependencies,
        registry: AgentRegistry,
        streams: Mapping[int, AgentStream],
        forgot: Callable[[], None],
    ) -> None:
        self._dependencies = dependencies
        self._registry = registry
        self._streams = streams
        self._forgot = forgot
        self._sweeping: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self._is_stopped = False

    def stop(self) -> None:
        """Stop watching."""
        self._is_stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()

    def watch(self) -> None:
        """Sweep until no agent and no stream is left. Idempotent."""
        if self._sweeping is None and not self._is_stopped:
            self._swept_at = self._dependencies.clock()
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = self._dependencies.clock()
        late_s = now - self._swept_at - SWEEP_S
        if late_s > DEAF_AFTER_S:
            self._registry.extend_deadlines(late_s)
        silent, forgotten = self._registry.expire(now)
        if silent or forgotten:
            self._dependencies.reporting_changed()
        for agent in silent:
            self._miss(agent, now)
        if forgotten:
            for agent in forgotten:
                log.info("the agent of %s is removed from the fleet", agent.address)
                if agent.stream is not None and not agent.is_leaving:
                    self._hang_up(self._streams[agent.stream])  # it has to send hello again
            self._forgot()
        for stream in self._streams.values():
            agent_or_none = stream.agent
            heard_at = agent_or_none.heard_at if agent_or_none is not None else stream.began_at
            if now - heard_at > CLOSE_AFTER_S:
                self._hang_up(stream)
            elif now - stream.sent_at >= NUMBER_EVERY_S:
                stream.send()
        if self._streams or len(self._registry):
            self.watch()

    def _hang_up(self, stream: AgentStream) -> None:
        stream.close(grpc.StatusCode.UNAVAILABLE, "no message for too long")

    def _miss(self, agent: Agent, now: float) -> None:
        address = agent.address
        if self._dependencies.is_scraped_by_picker(address):
            log.warning("the agent of %s is silent; the picker scrapes the server itself", address)
            return
        log.warning("the agent of %s is silent; the endpoint counts as down", address)
        self._dependencies.observe(
            Observation(
                address=address,
                began_at=now,
                answered_at=now,
                status=ScrapeStatus.UNREACHABLE,
                issues=(
                    Issue(
                        code="agent-silent",
                        message=f"its agent has sent no message for {self._registry.ttl_s:g} s",
                        remedy="check that `coxswain agent` runs there and reaches this picker",
                    ),
                ),
            )
        )
