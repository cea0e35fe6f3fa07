"""Finds out which kind of server there is.

Most are llama-servers, so the first scrape is one of those. Only if a server answers that in a way
no llama-server does, it is asked what shows the other kinds. Whatever was found holds until the
server is gone or fails, or another one answers: then it is found out again.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from extproc.core.observation import Observation, ScrapeStatus
from extproc.runners.answers import OK
from extproc.runners.client import Answer, Failure, RunnerClient
from extproc.runners.issues import BAD_ANSWER
from extproc.runners.probe import OpenProbe, Probe, ProbeOptions, ScrapePriority
from extproc.runners.target import EndpointTarget

CHECK_EVERY_SCRAPES: Final = 30
"""How often a server of another kind is asked whether it still is."""


class Detect(NamedTuple):
    """A server that answers GET `path` with `part` in its body is of this kind; with `more`, only
    if its bodies at these paths are such, too."""

    path: str
    part: bytes
    opens: OpenProbe
    more: tuple[tuple[str, Callable[[bytes], bool]], ...] = ()


class Usual(NamedTuple):
    """The kind to begin with. Whether a server is another one, its answer to GET `path` shows."""

    path: str
    is_another: Callable[[Answer | Failure], bool]
    opens: OpenProbe


class AutoProbe:
    """The probe of the kind that was found, or that of the usual kind."""

    def __init__(
        self,
        target: EndpointTarget,
        options: ProbeOptions,
        clock: Callable[[], float],
        lost_s: Callable[[float], float],
        usual: Usual,
        detects: Sequence[Detect],
        of: Callable[[OpenProbe], Probe],
    ) -> None:
        """`of` opens the probe of a kind."""
        self._client = RunnerClient(target, options.timeouts, clock, lost_s)
        self._detects = detects
        self._of = of
        self._usual = of(usual.opens)
        self._usual_path, self._is_not_usual = usual.path, usual.is_another
        self._found: Probe | None = None
        self._scrapes = 0

    async def scrape(self, priority: ScrapePriority) -> Observation:
        if self._found is not None:
            self._scrapes += 1
            if self._scrapes % CHECK_EVERY_SCRAPES == 0 and not await self._is_another():
                await self._forget()
                return await self._usual.scrape(priority)
            observation = await self._found.scrape(priority)
            if observation.status in (ScrapeStatus.UNREACHABLE, ScrapeStatus.FAILED):
                await self._forget()
            return observation
        observation = await self._usual.scrape(priority)
        if not any(issue.code == BAD_ANSWER for issue in observation.issues):
            return observation
        if not await self._is_another():
            return observation
        for detect in self._detects:
            if await self._is_one(detect):
                self._found = self._of(detect.opens)
                return await self._found.scrape(priority)
        return observation

    async def _is_one(self, detect: Detect) -> bool:
        """Whether it is of that kind; asks no more than it must."""
        answer = await self._client.ask(detect.path)
        if not isinstance(answer, Answer) or answer.status != OK or detect.part not in answer.body:
            return False
        for path, is_such in detect.more:
            answer = await self._client.ask(path)
            if not isinstance(answer, Answer) or answer.status != OK or not is_such(answer.body):
                return False
        return True

    async def _is_another(self) -> bool:
        """Whether it is certainly not of the usual kind."""
        return self._is_not_usual(await self._client.ask(self._usual_path))

    def set_leaving(self, models: frozenset[str]) -> None:
        self._usual.set_leaving(models)

    async def aclose(self) -> None:
        """Close whatever was opened."""
        await self._forget()
        await self._usual.aclose()
        await self._client.aclose()

    async def _forget(self) -> None:
        found, self._found = self._found, None
        if found is not None:
            await found.aclose()
