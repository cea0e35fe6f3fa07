"""What operators may know of one request, as plain values: no body, no prompt, no key."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from extproc.core.constraints import FIRST_TIER
from extproc.core.exchange_record import ExchangeRecord, Outcome, SeenTokens
from extproc.records.wait_samples import NOT_SAMPLED, SampledWait

ENDED: Final = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request. Times are seconds, and None where they are not known.

    `state` is `ended`, or as that of a running or queued request. `ended_at` is Unix time; of one
    that has not ended it is now. `duration_s` is all of its time, `arrival_s` what it took until
    enough of it had come for a decision, `waited_s` its time in the queue, `server_s` the time from
    its slot to its end. `first_token_s` is from its slot to its first token, as seen from here, of
    an ordinary response to its headers; `prompt_s` and `generated_s` are its server's own times.
    `queued_before` requests were queued when it was. When it was first sampled, `place_after_s`
    after it came, it had the `place` of `place_of`. `waits` are the seconds by the reason why it
    waited, as it was seen at intervals, and `wait_note` is what is said of it while it is queued,
    of any other what was said last.
    With `is_counted` the tokens are those of its response; otherwise a scrape saw them, `seen_s`
    before its end. `is_cold`: its model had to be loaded first. `is_servers_fault`: Envoy reported
    that its server broke it off. `is_overflow`: it ended because the context of its server was
    full.
    """

    exchange_id: str
    request_id: str = ""
    state: str = ENDED
    client: str = ""
    model: str = ""
    objective: str = ""
    criticality: str = ""
    path: str = ""
    endpoint: str = ""
    endpoint_name: str = ""
    tier: int = FIRST_TIER
    outcome: str = ""
    reason: str = ""
    status: int = 0
    attempts: int = 0
    ended_at: float
    duration_s: float
    arrival_s: float | None = None
    waited_s: float = 0.0
    queued_before: int | None = None
    place: int | None = None
    place_of: int | None = None
    place_after_s: float | None = None
    waits: Mapping[str, float] | None = None
    wait_note: str = ""
    server_s: float | None = None
    first_token_s: float | None = None
    is_stream: bool = False
    is_cold: bool = False
    is_counted: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    seen_s: float | None = None
    prompt_s: float | None = None
    generated_s: float | None = None
    pool: str = ""
    is_servers_fault: bool = False
    is_overflow: bool = False

    @property
    def word(self) -> str:
        """How it ended in one word: the reason if it was rejected, otherwise the outcome."""
        return self.reason if self.outcome == Outcome.REJECTED.value else self.outcome

    def as_json(self) -> dict[str, Any]:
        """What is not as by default."""
        values = asdict(self)
        return {
            field.name: values[field.name]
            for field in fields(self)
            if values[field.name] != field.default
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """What `as_json` wrote; what is unknown is left out. Raises `TypeError` for anything
        else."""
        return cls(**{name: value for name, value in values.items() if name in _NAMES})


_NAMES: Final = frozenset(field.name for field in fields(RequestRecord))


def record_of(
    ended: ExchangeRecord, wait: SampledWait | None, unix_offset_s: float
) -> RequestRecord:
    """An ended exchange; `unix_offset_s` is what the clock of Unix time is ahead of its own."""
    wait = wait or NOT_SAMPLED
    ended_at = ended.ended_at
    server_s = first_token_s = arrival_s = None
    if ended.opened_at is not None:
        server_s = max(0.0, ended_at - ended.opened_at)
        if ended.first_token_s is not None:
            first_token_s = ended.began_at + ended.first_token_s - ended.opened_at
            first_token_s = min(server_s, max(0.0, first_token_s))
    if ended.decided_at is not None:
        arrival_s = max(0.0, ended.decided_at - ended.began_at)
    prompt, cached, generated = ended.input_tokens, ended.cached_tokens, ended.output_tokens
    is_counted, seen_s = generated is not None or prompt is not None, None
    if not is_counted and ended.seen is not None:
        prompt, cached, generated, seen_s = tokens_seen(ended.seen, ended_at)
    return RequestRecord(
        exchange_id=ended.exchange_id,
        request_id=ended.request_id,
        client=ended.client,
        model=ended.model,
        objective=ended.objective,
        criticality=ended.criticality,
        path=ended.path,
        endpoint="" if ended.endpoint is None else str(ended.endpoint),
        endpoint_name=ended.endpoint_name,
        tier=ended.tier,
        outcome=ended.outcome.value,
        reason="" if ended.reason is None else ended.reason.value,
        status=ended.status,
        attempts=ended.attempts,
        ended_at=ended_at + unix_offset_s,
        duration_s=ended.duration_s,
        arrival_s=arrival_s,
        waited_s=ended.waited_s,
        queued_before=ended.queued_before,
        place=wait.place,
        place_of=wait.place_of,
        place_after_s=wait.place_after_s,
        waits=wait.reasons(ended.waited_s),
        wait_note=wait.note,
        server_s=server_s,
        first_token_s=first_token_s,
        is_stream=ended.is_stream,
        is_cold=ended.is_cold,
        is_counted=is_counted,
        prompt_tokens=prompt,
        cached_tokens=cached,
        generated_tokens=generated,
        seen_s=seen_s,
        prompt_s=ended.prompt_s,
        generated_s=ended.generated_s,
        pool=ended.pool,
        is_servers_fault=ended.is_servers_fault,
        is_overflow=ended.is_overflow,
    )


def tokens_seen(seen: SeenTokens, now: float) -> tuple[int | None, int | None, int | None, float]:
    """The tokens of the prompt, the cached ones of them and the generated ones, as a scrape saw
    them, and how long before `now` that was."""
    cached = None
    if seen.prompt is not None and seen.processed is not None and seen.generated:
        cached = max(0, seen.prompt - seen.processed)
    return seen.prompt, cached, seen.generated, max(0.0, now - seen.at)
