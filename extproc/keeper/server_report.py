"""What the picker hears of a model of the keeper, by an agent of its own."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from extproc.core.address import Address
from extproc.core.observation import Issue, Observation, ScrapeStatus
from extproc.keeper.model_status import ModelState, ModelStatus
from extproc.runners.target import EndpointTarget
from scraper.agent import Agent

MakeAgent = Callable[[EndpointTarget, str, Callable[[Observation], Observation]], Agent]
"""Makes the agent of a target with a name; the last argument edits its observations."""

UNRESPONSIVE_S: Final = 60.0
"""A server that gives no usable answer for this long is restarted."""
LEAVE_S: Final = 5.0


class ServerReport:
    """Begins when the server has loaded, and goes on through its restarts. Belongs to one event
    loop."""

    def __init__(
        self,
        address: Address,
        endpoint_name: str,
        make_agent: MakeAgent,
        status: Callable[[], ModelStatus],
        hung: Callable[[], None],
    ) -> None:
        """`hung` is called when the server has given no usable answer for `UNRESPONSIVE_S`."""
        self._address = address
        self._endpoint_name = endpoint_name
        self._make_agent = make_agent
        self._status = status
        self._hung = hung
        self._aliases: tuple[str, ...] = ()
        self._failing_since: float | None = None
        self._agent: Agent | None = None
        self._task: asyncio.Task[None] | None = None

    def server_started(self) -> None:
        """Another server runs there: the answers of the one before do not count."""
        self._failing_since = None

    def begin(self, key: str, aliases: Sequence[str]) -> None:
        """Report it to the picker; after a restart the agent reports already."""
        self._aliases = tuple(aliases)
        if self._agent is not None:
            self._agent.scrape_now()
            return
        target = EndpointTarget(address=self._address, api_key=key or None)
        self._agent = self._make_agent(target, self._endpoint_name, self._edited)
        name = f"report {self._status().name}"
        self._task = asyncio.create_task(self._agent.run(), name=name)

    def scrape_now(self) -> None:
        """Let the picker hear soon of what has changed."""
        if self._agent is not None:
            self._agent.scrape_now()

    async def deregister(self) -> None:
        """Return when the picker has said that its last request there has ended, or cannot."""
        assert self._agent is not None and self._task is not None
        self._agent.leave()
        await asyncio.wait({self._task})

    @property
    def was_granted(self) -> bool:
        """Whether the picker has said that its requests there have ended."""
        return self._agent is not None and self._agent.was_granted

    async def end(self, *, is_running: bool) -> None:
        """It has left, or its server is gone for good."""
        agent, task = self._agent, self._task
        self._agent = self._task = None
        if agent is None or task is None:
            return
        agent.leave()
        try:
            if not is_running:
                # Its requests have failed already; the picker learns it from Envoy.
                await asyncio.wait({task}, timeout=LEAVE_S)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _edited(self, observation: Observation) -> Observation:
        """The same under the names of the keeper's file, with what the keeper knows."""
        self._watch_health(observation)
        status = self._status()
        if observation.models and not observation.has_model_pools:
            model = replace(observation.models[0], name=status.name, aliases=self._aliases)
            observation = replace(observation, models=(model,))
        if status.problem:
            lines = status.detail.splitlines()
            issue = Issue(
                code="server-ended",
                message=f"{status.problem}: {lines[-1] if lines else 'it printed nothing'}",
                remedy=f"read its log with `coxswain logs {self._endpoint_name}`",
            )
            observation = replace(observation, issues=(issue, *observation.issues))
        return observation

    def _watch_health(self, observation: Observation) -> None:
        if self._status().state is not ModelState.LOADED or observation.status not in (
            ScrapeStatus.FAILED,
            ScrapeStatus.UNREACHABLE,
        ):
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = observation.answered_at
        elif observation.answered_at - self._failing_since >= UNRESPONSIVE_S:
            self._hung()
