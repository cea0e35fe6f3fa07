"""The options of one simulated server."""

import random
from dataclasses import dataclass
from enum import StrEnum

MAX_SLOTS = 65_536


class Distribution(StrEnum):
    """How service times spread around their mean."""

    FIXED = "fixed"
    UNIFORM = "uniform"  # from 0 to twice the mean
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorOptions:
    """One simulated server.

    `service_time_s` is the mean duration of a response in its slot, for any length; without it,
    `tokens_per_second` and the length determine the duration. `answer_tokens` is the length of a
    response if its request sets none. `context_tokens` is the context of each slot and, with
    `has_shared_context`, of all of them together, as in a llama-server without `--parallel`.
    `prompt_tokens_per_second` is the speed of the prefill, which is one uninterrupted step. With
    `has_early_headers`, streams send their headers before the prefill, as newer servers do,
    otherwise with the first token. `load_s` is the duration of loading. `kept_prompts` are the
    prompts whose caches are kept outside the slots. `logs_deferred` prints a
    line for each task that finds no free slot, and `shows_metrics` serves the gauges of requests
    at `/metrics`. Raises `ValueError` for invalid values.
    """

    slots: int = 2
    context_tokens: int = 4096
    has_shared_context: bool = False
    alias: str = "simulated"
    service_time_s: float | None = None
    distribution: Distribution = Distribution.FIXED
    tokens_per_second: float = 50.0
    prompt_tokens_per_second: float = 20_000.0
    answer_tokens: int = 32
    has_early_headers: bool = False
    load_s: float = 0.0
    api_key: str | None = None
    shows_slots: bool = True
    shows_metrics: bool = False
    gives_embeddings: bool = True
    kept_prompts: int = 0
    logs_deferred: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= MAX_SLOTS:
            raise ValueError(f"slots must be 1 to {MAX_SLOTS}, not {self.slots}")
        if self.context_tokens < 1 or self.answer_tokens < 1:
            raise ValueError("context_tokens and answer_tokens must be at least 1")
        if not (self.tokens_per_second > 0 and self.prompt_tokens_per_second > 0):
            raise ValueError(
                "tokens_per_second and prompt_tokens_per_second must be greater than 0"
            )
        if self.load_s < 0 or (self.service_time_s is not None and self.service_time_s < 0):
            raise ValueError("load_s and service_time_s must be at least 0")

    def draw_answer_s(self, tokens: int, source: random.Random) -> float:
        """How long generating `tokens` takes this time, in seconds."""
        mean_s = self.service_time_s
        if mean_s is None:
            mean_s = tokens / self.tokens_per_second
        match self.distribution:
            case Distribution.FIXED:
                return mean_s
            case Distribution.UNIFORM:
                return source.uniform(0.0, 2.0 * mean_s)
            case Distribution.EXPONENTIAL:
                return source.expovariate(1.0 / mean_s) if mean_s > 0 else 0.0
