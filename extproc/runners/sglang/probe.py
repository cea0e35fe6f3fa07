"""One SGLang, which reports what it can do and what it does.

    /v1/loads     of each of its schedulers (`dp_rank`): max_running_requests, num_running_reqs and
                  num_waiting_reqs, max_total_num_tokens and num_used_tokens
    /v1/models    the model, and its adapters by name

Slots are the requests that all schedulers run at once, and what waits there counts as busy. Its
tokens are a bound only: it lets requests share what they have in common, drops one and begins it
again where others need its room, so what our requests will hold at their peak is not known.
"""

from typing import Any, Final

from extproc.core.observation import MAX_SLOTS, ModelReading, Observation, ScrapeStatus
from extproc.runners import answers
from extproc.runners.answers import FULL_SHARE, PlainProbe
from extproc.runners.openai.paths import CLASSIFY, MODELS_PATH, RERANK, SCORE, TOKENIZE
from extproc.runners.probe import ScrapePriority
from extproc.runners.sglang.paths import LOADS_PATH, SGLANG

MODELS_EVERY_SCRAPES: Final = 20
CORE_LOADS_PATH: Final = f"{LOADS_PATH}?include=core"
APIS: Final = frozenset({SGLANG.name, RERANK.name, SCORE.name, CLASSIFY.name, TOKENIZE.name})


class SglangProbe(PlainProbe):
    """Reads the loads at each scrape, and the models now and then."""

    _models: tuple[ModelReading, ...] = ()
    _context_tokens: int | None = None
    _scrapes = 0

    async def scrape(self, priority: ScrapePriority) -> Observation:  # noqa: ARG002 - always alike
        if not self._models or self._scrapes % MODELS_EVERY_SCRAPES == 0:
            answer = await self._client.ask(MODELS_PATH)
            listed = answers.listed_with_context(answers.read(answer))
            if listed is None:
                return answers.failed(self._target.address, answer, MODELS_PATH, SGLANG.name)
            self._models, self._context_tokens = listed
        self._scrapes += 1
        answer = await self._client.ask(CORE_LOADS_PATH)
        loads = answers.entries(answers.read(answer), "loads")
        busy_slots = busy_of(loads or [])
        if loads is None or busy_slots is None:
            self._models = ()  # another process may answer next time
            return answers.failed(self._target.address, answer, LOADS_PATH, SGLANG.name)
        return Observation(
            address=self._target.address,
            began_at=answer.began_at,
            answered_at=answer.answered_at,
            status=ScrapeStatus.READY,
            slots=slots_of(loads),
            busy_slots=busy_slots,
            is_full=is_full(loads),
            models=self._models,
            context_tokens=self._context_tokens,
            shared_tokens=0,
            runner=SGLANG.name,
            apis=APIS,
        )


def busy_of(loads: list[dict[str, Any]]) -> int | None:
    """How many requests run and wait, of all schedulers; None if these are no loads."""
    found = 0
    for load in loads:
        running = answers.count(load.get("num_running_reqs"))
        waiting = answers.count(load.get("num_waiting_reqs"))
        if running is None or waiting is None:
            return None
        found += running + waiting
    return min(MAX_SLOTS, found) if loads else None


def slots_of(loads: list[dict[str, Any]]) -> int | None:
    """How many requests they run at once; None if one does not say."""
    found = [answers.count(load.get("max_running_requests")) or 0 for load in loads]
    return min(MAX_SLOTS, sum(found)) if all(found) else None


def is_full(loads: list[dict[str, Any]]) -> bool:
    """Whether no scheduler has room in its cache; False if one does not say."""
    for load in loads:
        used = answers.count(load.get("num_used_tokens"))
        most = answers.count(load.get("max_total_num_tokens"))
        if used is None or not most or used < FULL_SHARE * most:
            return False
    return True
