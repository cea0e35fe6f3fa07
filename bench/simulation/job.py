"""One request of a trace, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Job:
    """`service_s` is how long it holds its slot, where the trace says so; otherwise the server
    works it out from the tokens. `blocks` chain over the prompt, `blocks_after` go on over the
    answer. Times are None until they are known; those of a try that was lost do not count. If
    `is_killed`, it ended with the others of its server when their shared context was full.
    `estimated_tokens` are what the picker takes its prompt for, if not `prompt_tokens`. `follower`
    arrives `pause_s` after the end of this one; until that is known, at infinity.
    """

    id: int
    arrived_at: float
    service_s: float | None = None
    prompt_tokens: int = 0
    estimated_tokens: int | None = None
    answer_tokens: int = 0
    blocks: tuple[int, ...] = ()
    blocks_after: tuple[int, ...] = ()
    session: str | None = None
    tenant: str = ""
    objective: str | None = None
    traits: str = ""
    is_embedding: bool = False
    max_tokens: int | None = None
    follower: Job | None = None
    pause_s: float = 0.0
    started_at: float | None = None
    answered_at: float | None = None
    ended_at: float | None = None
    lost_tries: int = 0
    is_killed: bool = False
    cached_tokens: int = 0
    rejection: str | None = None
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def waited_s(self) -> float:
        assert self.started_at is not None
        return self.started_at - self.arrived_at

    @property
    def ttft_s(self) -> float:
        assert self.answered_at is not None
        return self.answered_at - self.arrived_at
