"""One Ollama: its models, and which of them are loaded.

    /api/tags   the models, named with their tags: one without a tag means `:latest`
    /api/ps     those that are loaded, and the context of each

It shows neither its slots nor what runs: only our own leases count. Each loaded model has slots of
its own, as many as OLLAMA_NUM_PARALLEL says, which is 1 unless it is set: that number belongs into
the setting `slots`. For some families, and for embeddings, Ollama uses one whatever is set. A model
that is not loaded is loaded by the first request for it, and is in `/api/ps` from then on.
"""

from collections.abc import Mapping
from typing import Any, Final

from extproc.core.observation import ModelReading, ModelState, Observation, ScrapeStatus
from extproc.runners import answers
from extproc.runners.answers import PlainProbe
from extproc.runners.ollama.paths import OLLAMA, RUNNING_PATH, TAGS_PATH
from extproc.runners.probe import ScrapePriority

APIS: Final = frozenset({OLLAMA.name})
LATEST: Final = ":latest"
DEFAULT_SLOTS: Final = 1
SERIAL_FAMILIES: Final = frozenset(
    {
        *("mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next"),
        *("lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"),
        *("bert", "nomic-bert", "nomic-bert-moe", "gemma-embedding"),
    }
)
"""Families whose models serve one request at a time: server/sched.go, load; the last are those of
models that only embed."""


class OllamaProbe(PlainProbe):
    """Asks for both lists at each scrape. Neither loads a model, nor keeps one loaded."""

    async def scrape(self, priority: ScrapePriority) -> Observation:  # noqa: ARG002 - always alike
        first = await self._client.ask(TAGS_PATH)
        tags = answers.entries(answers.read(first), "models")
        if tags is None:
            return answers.failed(self._target.address, first, TAGS_PATH, OLLAMA.name)
        second = await self._client.ask(RUNNING_PATH)
        running = answers.entries(answers.read(second), "models")
        if running is None:
            return answers.failed(self._target.address, second, RUNNING_PATH, OLLAMA.name)
        models = models_of(tags, running, self._target.slots)
        return Observation(
            address=self._target.address,
            began_at=first.began_at,
            answered_at=second.answered_at,
            status=ScrapeStatus.READY,
            slots=sum(model.slots or 0 for model in models) or self._target.slots or DEFAULT_SLOTS,
            models=models,
            runner=OLLAMA.name,
            apis=APIS,
            shared_tokens=0,
        )


def lists_tags(body: bytes) -> bool:
    """Whether this is an answer to `/api/tags`."""
    return b'"models"' in body


def models_of(
    tags: list[dict[str, Any]], running: list[dict[str, Any]], slots: int | None
) -> tuple[ModelReading, ...]:
    """The models on disk, and those of them that are loaded, each with `slots` then."""
    loaded = {name: one for one in running if (name := answers.name(one.get("name"))) is not None}
    found: dict[str, ModelReading] = {}
    for tag in [*tags, *running]:
        name = answers.name(tag.get("name"))
        if name is None or name in found:
            continue
        is_loaded = name in loaded
        found[name] = ModelReading(
            name=name,
            aliases=(name.removesuffix(LATEST),) if name.endswith(LATEST) else (),
            is_loaded=is_loaded,
            may_be_loading=is_loaded,
            slots=slots_of(tag, slots) if is_loaded else None,
            reported=ModelState.LOADED if is_loaded else ModelState.UNLOADED,
            shared_tokens=0,
        )
    return tuple(found.values())


def slots_of(tag: Mapping[str, Any], slots: int | None) -> int:
    """How many requests a loaded model serves at once."""
    details = tag.get("details")
    family = details.get("family") if isinstance(details, dict) else None
    return 1 if family in SERIAL_FAMILIES else slots or DEFAULT_SLOTS
