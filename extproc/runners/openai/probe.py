"""A server of which no more is known than that it has OpenAI's API: it lists its models.

Neither its slots nor who else uses it are shown: only our own leases count, on the number of slots
in the settings.
"""

from typing import Final

from extproc.core.observation import Observation, ScrapeStatus
from extproc.runners import answers, issues
from extproc.runners.answers import PlainProbe
from extproc.runners.openai.paths import MODELS_PATH, RERANK
from extproc.runners.probe import ScrapePriority

NAME: Final = "openai"
APIS: Final = frozenset({RERANK.name})


class OpenAIProbe(PlainProbe):
    """Lists the models at each scrape. A server that does not show them to us, as it wants a key
    of its clients, serves all the same."""

    async def scrape(self, priority: ScrapePriority) -> Observation:  # noqa: ARG002 - always alike
        answer = await self._client.ask(MODELS_PATH)
        models = answers.listed(answers.read(answer))
        is_shut = answers.wants_key(answer)
        if models is None and not is_shut:
            return answers.failed(self._target.address, answer, MODELS_PATH, NAME)
        found = (issues.unauthorized(self._target.api_key is not None),) if is_shut else ()
        return Observation(
            address=self._target.address,
            began_at=answer.began_at,
            answered_at=answer.answered_at,
            status=ScrapeStatus.READY,
            models=models or (),
            issues=found,
            runner=NAME,
            apis=APIS,
            shared_tokens=0,
        )
