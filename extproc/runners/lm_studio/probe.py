"""One LM Studio, 0.4 or newer: its models, and which of them are loaded.

    /api/v1/models    each model by its key, with its loaded instances and the context of each

It shows neither its slots nor what runs: only our own leases count. Each loaded instance has slots
of its own, as many as "Max Concurrent Predictions" of its model says: that number belongs into the
setting `slots`. A model that is not loaded is loaded by the first request for it, if the server
loads models on demand.
"""

from typing import Any, Final

from extproc.core.observation import MAX_SLOTS, ModelReading, ModelState, Observation, ScrapeStatus
from extproc.runners import answers
from extproc.runners.answers import PlainProbe
from extproc.runners.lm_studio.paths import LM_STUDIO, LM_STUDIOS_MODELS_PATH
from extproc.runners.probe import ScrapePriority

APIS: Final = frozenset({LM_STUDIO.name})
DEFAULT_SLOTS: Final = 1
"""Without the setting: whatever else is set there is not shown."""


class LmStudioProbe(PlainProbe):
    """Asks for the list at each scrape, which loads nothing and keeps nothing loaded."""

    async def scrape(self, priority: ScrapePriority) -> Observation:  # noqa: ARG002 - always alike
        answer = await self._client.ask(LM_STUDIOS_MODELS_PATH)
        listed = answers.entries(answers.read(answer), "models")
        if listed is None:
            return answers.failed(
                self._target.address, answer, LM_STUDIOS_MODELS_PATH, LM_STUDIO.name
            )
        models = models_of(listed, self._target.slots)
        return Observation(
            address=self._target.address,
            began_at=answer.began_at,
            answered_at=answer.answered_at,
            status=ScrapeStatus.READY,
            slots=sum(model.slots or 0 for model in models) or self._target.slots or DEFAULT_SLOTS,
            models=models,
            runner=LM_STUDIO.name,
            apis=APIS,
            shared_tokens=0,
        )


def models_of(listed: list[dict[str, Any]], slots: int | None) -> tuple[ModelReading, ...]:
    """The models by their keys. The id of an instance is another name of its model, as a request
    that names the model reaches any instance."""
    found: dict[str, ModelReading] = {}
    for entry in listed:
        key = answers.name(entry.get("key"))
        if key is None or key in found:
            continue
        instances = answers.entries(entry, "loaded_instances") or []
        names = dict.fromkeys(map(answers.name, (one.get("id") for one in instances)))
        count = len(instances)
        found[key] = ModelReading(
            name=key,
            aliases=tuple(one for one in names if one is not None and one != key),
            is_loaded=bool(instances),
            slots=min(MAX_SLOTS, count * (slots or DEFAULT_SLOTS)) if instances else None,
            reported=ModelState.LOADED if instances else ModelState.UNLOADED,
            shared_tokens=0,
        )
    return tuple(found.values())
