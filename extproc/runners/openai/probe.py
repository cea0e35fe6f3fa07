"""A server of which no more is known than that it has OpenAI's API: it lists its models.

Neither its slots nor who else uses it are shown: only our own leases count, on the number of slots
in the settings.
"""

from typing import Any, Final

from extproc.core.observation import MAX_ENTRIES, ModelReading, Observation, ScrapeStatus
from extproc.runners import answers, issues
from extproc.runners.answers import PlainProbe
from extproc.runners.openai.paths import MODELS_PATH, RERANK
from extproc.runners.probe import ScrapePriority

NAME: Final = "openai"
APIS: Final = frozenset({RERANK.name})


class OpenAIProbe(PlainProbe):
    """Lists the models at each scrape. A server that does not show them to us, as it wants a key
    of its clients, serves all the same; not if it rejects the key with which requests are sent."""

    async def scrape(self, priority: ScrapePriority) -> Observation:  # noqa: ARG002 - always alike
        answer = await self._client.ask(MODELS_PATH)
        listed = answers.entries(answers.read(answer), "data")
        is_shut = answers.wants_key(answer)
        if self._target.sends_key and answers.rejects_key(answer):
            return Observation(
                address=self._target.address,
                began_at=answer.began_at,
                answered_at=answer.answered_at,
                status=ScrapeStatus.FAILED,
                issues=(issues.key_rejected(),),
                runner=NAME,
            )
        if listed is None and not is_shut:
            return answers.failed(self._target.address, answer, MODELS_PATH, NAME)
        found = (issues.unauthorized(self._target.api_key is not None),) if is_shut else ()
        return Observation(
            address=self._target.address,
            began_at=answer.began_at,
            answered_at=answer.answered_at,
            status=ScrapeStatus.READY,
            models=models_of(listed or []),
            issues=found,
            runner=NAME,
            apis=APIS,
            shared_tokens=0,
        )


def models_of(listed: list[dict[str, Any]]) -> tuple[ModelReading, ...]:
    """The models of OpenAI's list, each once. Of llama-swap also their aliases, which it serves as
    well: all models together have at most `MAX_ENTRIES` of them, others are not read."""
    found: dict[str, ModelReading] = {}
    room = MAX_ENTRIES
    for entry in listed:
        name = answers.name(entry.get("id"))
        if name is not None and name not in found:
            named = map(answers.name, _aliases(entry)[:room])
            aliases = tuple(one for one in dict.fromkeys(named) if one not in (None, name))
            found[name] = ModelReading(name=name, aliases=aliases)
            room -= len(aliases)
    return tuple(found.values())


def _aliases(entry: dict[str, Any]) -> list[Any]:
    """Those that llama-swap shows of a model."""
    found: Any = entry
    for key in ("meta", "llamaswap", "aliases"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []
