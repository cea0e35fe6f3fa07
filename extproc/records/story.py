"""Where the time of one request went, in words. What cannot be known is said to be unknown."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from extproc.core.exchange_record import Outcome
from extproc.core.exchange_registry import ExchangeState
from extproc.core.rejection import Reason
from extproc.core.views.waits import WaitReason
from extproc.records.neighbours import Neighbours
from extproc.records.request_record import ENDED, RequestRecord
from extproc.records.wait_samples import INTERVAL_S

REASONS: Final = {
    WaitReason.NO_IDLE_SLOT: "no server that can serve it had a free slot",
    WaitReason.RESERVED: "free slots were reserved for a request that needs more",
    WaitReason.TOO_FEW_SLOTS: "it needs more slots at once than a server had free",
    WaitReason.TOO_FEW_TOKENS: "the context that slots share had no room for its tokens",
    WaitReason.AFFINITY: "it waited for the server that has its prompt in the cache or its model",
    WaitReason.MODEL_LOADING: "its model was being loaded",
    WaitReason.WAKING: "the machine of a server for it was being woken",
    WaitReason.NO_ENDPOINT: "no server that can serve it took requests",
    WaitReason.EXCLUDED_BY_RULE: "rules excluded every server that could serve it",
    WaitReason.BOUND_REACHED: "as many requests as its bounds allow ran",
    WaitReason.LIMIT_REACHED: "as many requests of its session or flow as its limit allows ran or "
    "were next",
    WaitReason.UNREPORTED: "a server had not reported its models yet",
}
UNKNOWN: Final = "not known"
NO_COUNTS: Final = "its tokens are not known: only usage.path counts those of whole responses"
MIN_PART_S: Final = 0.0005
LEAST_SUMMED_S: Final = 0.005
"""Of less than this nobody asks where it went."""
FIRST_ERROR: Final = 400
"""The lowest status of an error, and"""
FIRST_SERVER_ERROR: Final = 500
"""that with which Envoy says that a server did not respond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a request's time: `arrival`, `queue`, `prompt`, `answer`, `server` for both
    together, or `other`. `is_exact` unless it was estimated from outside of the server."""

    name: str
    seconds: float
    text: str
    is_exact: bool = True


def parts_of(record: RequestRecord) -> list[Part]:
    """The parts of its time, in their order. They add up to all of it."""
    return [*_before_server(record), *_at_server(record)]


def summary_of(record: RequestRecord, parts: list[Part]) -> str:
    """Where most of the time went, as one sentence."""
    largest = max(parts, key=lambda part: part.seconds, default=None)
    if largest is None or record.duration_s < LEAST_SUMMED_S:
        return ""
    share = min(1.0, largest.seconds / record.duration_s)
    return f"{share:.0%} of its {_s(record.duration_s)} went to {_PLACES[largest.name]}"


def end_of(record: RequestRecord) -> str:
    """The end of a request as the text of an event: which one it was, and its times."""
    id_ = record.request_id or record.exchange_id
    whose = f" of {record.client}" if record.client else ""
    model = f" for {record.model}" if record.model else ""
    status = f"{record.status}, " if record.status else ""
    waited = f", {_s(record.waited_s)} of it in the queue" if record.waited_s else ""
    cause = cause_of(record)
    why = f": {cause}" if cause else ""
    return f"request {id_}{whose}{model} ended: {status}{_s(record.duration_s)}{waited}{why}"


def cause_of(record: RequestRecord) -> str:
    """Why a request was not answered to the end, as a sentence as far as that is known; empty if
    it was, or was rejected."""
    where = record.endpoint_name or record.endpoint
    if record.is_overflow:
        return f"the context of {where} was full, which ended it"
    if record.is_servers_fault:
        return f"{where} broke it off"
    if record.outcome != Outcome.BROKEN.value:
        return ""
    if record.reason:
        return "an operator ended it" if record.reason == Reason.CANCELLED.value else record.reason
    if record.status >= FIRST_SERVER_ERROR:
        return f"Envoy got no response from {where}"
    when = "was whole" if record.status else "began"
    return f"its client left, or Envoy ended it, before the response {when}"


def beside_of(record: RequestRecord, beside: Neighbours | None) -> str:
    """How many others ran at its server meanwhile, as a sentence; empty if it was at none."""
    if beside is None:
        return ""
    where = record.endpoint_name or record.endpoint
    at_least = "" if beside.all_known else "at least "
    if not beside.count:
        if not beside.all_known:
            return f"whether others ran on {where} meanwhile is {UNKNOWN}: their records are gone"
        return f"no other request ran on {where} meanwhile"
    noun = "request" if beside.count == 1 else "requests"
    return (
        f"{at_least}{beside.count} other {noun} ran on {where} meanwhile, "
        f"{beside.mean:.1f} at once on average, {beside.most} at most"
    )


def _before_server(record: RequestRecord) -> Iterator[Part]:
    if record.arrival_s is None:
        text = "it ended before enough of it had come to decide"
        if record.state != ENDED:
            text = "not enough of it has come to decide"
        yield Part(name="arrival", seconds=record.duration_s, text=text)
        return
    text = "until enough of it had come to decide"
    yield Part(name="arrival", seconds=record.arrival_s, text=text)
    yield Part(name="queue", seconds=record.waited_s, text=_queue_text(record))


def _queue_text(record: RequestRecord) -> str:
    if not record.waited_s and record.queued_before is None:
        return "it did not wait"
    parts = []
    if record.queued_before is not None:
        before = record.queued_before
        verb = "were" if before > 1 else "was"
        parts.append(f"{before or 'none'} {verb} queued when it came")
    if record.place is not None:
        place = f"its place was {record.place} of {record.place_of}"
        if record.place_after_s is not None:
            place += f" after {_s(record.place_after_s)}"
        parts.append(place)
    if not record.waits:
        parts.append(f"why is {UNKNOWN}: the queue is sampled each {INTERVAL_S:g} s")
        return "; ".join(parts)
    reasons = sorted(record.waits.items(), key=lambda each: -each[1])
    for reason, seconds in reasons:
        text = _meaning(reason)
        parts.append(text if len(reasons) == 1 else f"{_s(seconds)}: {text}")
    if record.wait_note:
        is_queued = record.state == ExchangeState.QUEUED.value
        note = record.wait_note if is_queued else f'what was said then: "{record.wait_note}"'
        parts.append(note)
    return "; ".join(parts)


def _meaning(reason: str) -> str:
    try:
        return REASONS[WaitReason(reason)]
    except ValueError:
        return reason  # written by another version


def _at_server(record: RequestRecord) -> Iterator[Part]:
    if record.arrival_s is None:
        return
    if record.server_s is None:
        rest_s = max(0.0, record.duration_s - record.arrival_s - record.waited_s)
        if record.state == ENDED and rest_s > MIN_PART_S:
            yield Part(name="other", seconds=rest_s, text="until its stream ended")
        return
    if record.state == ExchangeState.RUNNING.value:
        yield _waits_for_answer(record)
        return
    prompt_s, generated_s = record.prompt_s, record.generated_s
    if prompt_s is not None and generated_s is not None:
        yield Part(name="prompt", seconds=prompt_s, text=_prompt_text(record, prompt_s))
        yield Part(name="answer", seconds=generated_s, text=_answer_text(record, generated_s))
        others_s = max(0.0, record.server_s - prompt_s - generated_s)
        yield Part(name="other", seconds=others_s, text=_other_text(record))
        return
    first_s = record.first_token_s
    if record.status >= FIRST_ERROR:
        yield Part(name="server", seconds=record.server_s, text="until it answered with an error")
        return
    if first_s is None or not record.is_stream:
        text = "until its first token, and then for the answer: not known apart"
        yield Part(name="server", seconds=record.server_s, text=_joined(text, record))
        return
    text = "until its first token, as seen from here"
    if record.is_cold:
        text += "; the load of its model is a part of it"
    text = f"{text}; {_prompt_counts(record)}" if _prompt_counts(record) else text
    yield Part(name="prompt", seconds=first_s, text=text, is_exact=False)
    answer_s = record.server_s - first_s
    text = _answer_text(record, answer_s)
    yield Part(name="answer", seconds=answer_s, text=text, is_exact=False)


def _waits_for_answer(record: RequestRecord) -> Part:
    text = "its server has not answered yet"
    if record.is_cold:
        text += "; its model had to be loaded first"
    return Part(name="server", seconds=record.server_s or 0.0, text=_joined(text, record))


def _joined(text: str, record: RequestRecord) -> str:
    counts = [_prompt_counts(record), _answer_counts(record)]
    known = "; ".join(filter(None, counts))
    return f"{text}; {known or NO_COUNTS}"


def _prompt_counts(record: RequestRecord) -> str:
    tokens = record.prompt_tokens
    if tokens is None:
        return ""
    if record.cached_tokens is None:
        return f"{_tokens(tokens)}, how many of them were cached is {UNKNOWN}"
    share = record.cached_tokens / tokens if tokens else 0.0
    return f"{_tokens(tokens)}, {record.cached_tokens} of them cached ({share:.0%})"


def _answer_counts(record: RequestRecord) -> str:
    if record.generated_tokens is None:
        return ""
    if record.is_counted or record.seen_s is None:
        return _tokens(record.generated_tokens)
    when = "before its end" if record.state == ENDED else "ago"
    seen = f"when a scrape saw it, {_s(record.seen_s)} {when}"
    return f"{_tokens(record.generated_tokens)} {seen}"


def _prompt_text(record: RequestRecord, prompt_s: float) -> str:
    text = f"by its server's own time; {_prompt_counts(record) or NO_COUNTS}"
    if record.prompt_tokens is not None and record.cached_tokens is not None and prompt_s > 0:
        text += f", the others at {(record.prompt_tokens - record.cached_tokens) / prompt_s:.0f}/s"
    return text


def _answer_text(record: RequestRecord, answer_s: float) -> str:
    counts = _answer_counts(record)
    if not counts:
        return f"from its first token to its end; {NO_COUNTS}"
    if record.is_counted and record.generated_tokens and answer_s > 0:
        return f"{counts} at {record.generated_tokens / answer_s:.1f} tokens/s"
    return counts


def _other_text(record: RequestRecord) -> str:
    if record.is_cold:
        return "the load of its model, and what is not the server's own work"
    return "its way there and back, and waiting in its server"


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def _s(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 99.5 else f"{seconds:.0f} s"


_PLACES: Final = {
    "arrival": "its own arrival",
    "queue": "the queue",
    "prompt": "the time to its first token",
    "answer": "the answer's tokens",
    "server": "its server",
    "other": "neither queue nor tokens",
}
