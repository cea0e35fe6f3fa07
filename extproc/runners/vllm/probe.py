"""One vLLM: what runs and waits there, by its metrics.

    vllm:num_requests_running, vllm:num_requests_waiting    one series for each engine: their sum is
                                                            the number of busy slots
    vllm:kv_cache_usage_perc                                the share of the cache that requests
                                                            hold: from `FULL_SHARE` on it is full
    vllm:engine_sleep_state, or else /is_sleeping           whether it sleeps: then it gets nothing,
                                                            as it wakes only by /wake_up
    GET /score and others                                   404 if it does not serve them, as its
                                                            model decides, else 405
    process_start_time_seconds, and the names of models     another process, or another model: what
                                                            was known of the one before is forgotten
    /v1/models                                              the model, its adapters, max_model_len

How many requests it runs at once (--max-num-seqs) it does not show: the setting `slots` says it.
With --disable-log-stats it has none of these metrics: only our own leases count then, and nothing
is said of a sleep but by /is_sleeping.
"""

import re
from typing import Final

from extproc.core.observation import MAX_SLOTS, ModelReading, Observation, ScrapeStatus
from extproc.runners import answers, issues
from extproc.runners.answers import FULL_SHARE, PlainProbe
from extproc.runners.client import Answer, Failure
from extproc.runners.openai.paths import CLASSIFY, MODELS_PATH, RERANK, SCORE, TOKENIZE
from extproc.runners.probe import ScrapePriority
from extproc.runners.vllm.paths import POOLING, VLLM

METRICS_PATH: Final = "/metrics"
VERSION_OF_VLLM: Final = "/version"
MODELS_EVERY_SCRAPES: Final = 20
NO_SUCH_PATH: Final = 404
SLEEPING_PATH: Final = "/is_sleeping"
"""Only there with VLLM_SERVER_DEV_MODE."""
APIS: Final = {
    "/score": (VLLM.name, SCORE.name),
    "/pooling": (POOLING.name,),
    "/classify": (CLASSIFY.name,),
    "/rerank": (RERANK.name,),
    "/tokenize": (TOKENIZE.name,),
}
"""The APIs that it has with some models only, by a path that it has with these."""
_GAUGE: Final = re.compile(
    rb"^vllm:num_requests_(running|waiting)(?:\{[^}\n]*\})? (\d{1,9}(?:\.0)?)\r?$", re.MULTILINE
)
_METRICS: Final = b"# HELP "
_USAGE: Final = re.compile(
    rb"^vllm:(?:kv|gpu)_cache_usage_perc(?:\{[^}\n]*\})? ([01](?:\.\d{1,20})?)\r?$", re.MULTILINE
)
"""Of each engine; earlier versions named it by the GPU."""
_STARTED: Final = re.compile(rb"^process_start_time_seconds ([0-9.e+]{1,32})\r?$", re.MULTILINE)
"""Not there if it has several processes that serve its API."""
_OWNED: Final = re.compile(rb'"owned_by": ?"vllm"')
_NAMED: Final = re.compile(
    rb'^vllm:num_requests_running\{[^}\n]*model_name="([^"\n]{1,512})"', re.MULTILINE
)
_AWAKE: Final = re.compile(
    rb'^vllm:engine_sleep_state\{[^}\n]*sleep_state="awake"[^}\n]*\} ([01])(?:\.0)?\r?$',
    re.MULTILINE,
)


class VllmProbe(PlainProbe):
    """Reads the metrics at each scrape, and the models now and then."""

    _models: tuple[ModelReading, ...] = ()
    _context_tokens: int | None = None
    _scrapes = 0
    _server: tuple[bytes, frozenset[bytes]] = (b"", frozenset())
    """By what another process is recognised."""
    _shows_sleep = False
    """Whether it has `SLEEPING_PATH`."""
    _apis: frozenset[str] = frozenset()
    _is_shut = False
    """Whether it wants a key for its models, as it does of clients."""

    async def scrape(self, priority: ScrapePriority) -> Observation:  # noqa: ARG002 - always alike
        answer = await self._client.ask(METRICS_PATH)
        busy_slots = busy_of(answer.body) if isinstance(answer, Answer) else None
        has_none = isinstance(answer, Answer) and has_no_stats(answer.body)
        if (busy_slots is None and not has_none) or not answers.is_usable(answer):
            self._models = ()  # another process may answer next time
            return answers.failed(self._target.address, answer, METRICS_PATH, VLLM.name)
        assert isinstance(answer, Answer)
        started = started_at(answer.body)
        server = started, frozenset(_NAMED.findall(answer.body))
        if server != self._server or not self._models or self._scrapes % MODELS_EVERY_SCRAPES == 0:
            self._models = ()
            found = await self._client.ask(MODELS_PATH)
            listed = answers.listed_with_context(answers.read(found))
            self._is_shut = answers.wants_key(found)
            if self._is_shut:
                listed = (), None
            if listed is None:
                return answers.failed(self._target.address, found, MODELS_PATH, VLLM.name)
            self._models, self._context_tokens = listed
            if server != self._server or not started:
                shown = [path for path in APIS if has_path(await self._client.ask(path))]
                self._apis = frozenset(name for path in shown for name in APIS[path])
            self._server = server
            self._shows_sleep = sleeping_of(await self._client.ask(SLEEPING_PATH)) is not None
        self._scrapes += 1
        has_key = self._target.api_key is not None
        is_awake = awake_of(answer.body)
        if is_awake is None and self._shows_sleep:
            is_awake = not sleeping_of(await self._client.ask(SLEEPING_PATH))
        return Observation(
            address=self._target.address,
            began_at=answer.began_at,
            answered_at=answer.answered_at,
            status=ScrapeStatus.LOADING if is_awake is False else ScrapeStatus.READY,
            issues=(
                *((issues.sleeps_until_called(),) if is_awake is False else ()),
                *((issues.metrics_disabled(),) if has_none else ()),
                *((issues.models_unauthorized(has_key),) if self._is_shut else ()),
            ),
            busy_slots=busy_slots,
            is_full=is_full(answer.body),
            models=self._models,
            context_tokens=self._context_tokens,
            shared_tokens=0,
            instance=started.decode() or None,
            runner=VLLM.name,
            apis=self._apis,
        )


def has_path(answer: Answer | Failure) -> bool:
    """Whether it has the path that was asked for: unless it says that it has not."""
    return isinstance(answer, Failure) or answer.status != NO_SUCH_PATH


def started_at(body: bytes) -> bytes:
    """When its process started, in its own words; empty if that is not shown."""
    found = _STARTED.search(body)
    return b"" if found is None else found[1]


def busy_of(body: bytes) -> int | None:
    """How many requests run and wait, of all engines; None if these are no metrics of vLLM."""
    found = _GAUGE.findall(body)
    if not any(name == b"running" for name, _ in found):
        return None
    return min(MAX_SLOTS, sum(int(float(value)) for _, value in found))


def has_no_stats(body: bytes) -> bool:
    """Whether these are metrics of a process that counts no requests."""
    return body.startswith(_METRICS) and b"vllm:" not in body


def is_vllms_list(body: bytes) -> bool:
    """Whether this is a list of models that says that it is vLLM's."""
    return _OWNED.search(body) is not None


def is_full(body: bytes) -> bool:
    """Whether no engine has room in its cache; False if that is not shown."""
    found = [float(share) for share in _USAGE.findall(body)]
    return bool(found) and min(found) >= FULL_SHARE


def awake_of(body: bytes) -> bool | None:
    """Whether all engines are awake; None if that is not shown."""
    found = _AWAKE.findall(body)
    return all(state == b"1" for state in found) if found else None


def sleeping_of(answer: Answer | Failure) -> bool | None:
    """Whether it says that it sleeps; None if it does not say."""
    value = answers.read(answer)
    found = value.get("is_sleeping") if isinstance(value, dict) else None
    return found if isinstance(found, bool) else None
