"""Requests the slots of a plain server and of a router's loaded models.

The ledger depends on its two times, so they are taken around /slots alone: before the first such
GET is sent, and after the last counted response is complete.
"""

from dataclasses import dataclass, replace
from urllib.parse import quote

from extproc.core.observation import MAX_ENTRIES, MAX_SLOTS, EndedTask, SlotReading
from extproc.runners.answers import ParseError
from extproc.runners.client import Answer, Failure, FailureKind, RunnerClient
from extproc.runners.llama_server.parse import parse_slots

MAX_REQUESTED_MODELS = 64
"""The highest number of loaded models of a router whose slots are requested."""
NOT_LOADED = frozenset({400, 404, 503})
"""The responses of a router and its children for a model that is not loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCounts:
    """How many slots were busy at some moment of [began_at, answered_at].

    `by_model` maps a router's models to (slots, busy slots), without those that turned out
    not to be loaded; it is None for a plain server. Of a router `busy` and `ended` name the models,
    and `context_tokens` is the largest.
    """

    began_at: float
    answered_at: float
    slots: int
    busy_slots: int
    newest_task: int | None
    is_first_on_connection: bool
    by_model: dict[str, tuple[int, int]] | None
    busy: tuple[SlotReading, ...] = ()
    ended: tuple[EndedTask, ...] = ()
    context_tokens: int | None = None


def garbled(answer: Answer, error: ParseError) -> Failure:
    """A complete response without usable content, as a failure with the same times."""
    return Failure(
        kind=FailureKind.UNUSABLE,
        message=str(error),
        began_at=answer.began_at,
        answered_at=answer.answered_at,
    )


async def request_slots(
    client: RunnerClient, models: tuple[str, ...] | None = None
) -> SlotCounts | Answer | Failure:
    """GET /slots of a plain server, or of each of a router's `models` (at least one), one after the
    other.

    An error response is returned as it is, but models that are not loaded any more are left out. If
    none is loaded, returns the last response.
    """
    if models is None:
        paths = {"": "/slots"}
    else:
        # `autoload=false` keeps the router from loading a model that was unloaded meanwhile; it
        # then responds with 400.
        paths = {
            model: f"/slots?model={quote(model, safe='')}&autoload=false"
            for model in models[:MAX_REQUESTED_MODELS]
        }
    by_model: dict[str, tuple[int, int]] = {}
    busy: list[SlotReading] = []
    ended: list[EndedTask] = []
    context_tokens: int | None = None
    began_at: float | None = None
    answered_at = 0.0
    is_first = False
    rejection: Answer | None = None
    newest_task: int | None = None
    for model, path in paths.items():
        answer = await client.ask(path)
        if isinstance(answer, Answer) and answer.status in NOT_LOADED:
            rejection = answer
            continue
        if isinstance(answer, Failure) or answer.status != 200:
            return answer
        try:
            reading = parse_slots(answer.body)
        except ParseError as error:
            return garbled(answer, error)
        by_model[model] = (reading.slots, reading.busy_slots)
        newest_task = reading.newest_task
        busy += [replace(one, model=model) for one in reading.busy[: MAX_ENTRIES - len(busy)]]
        ended += [replace(one, model=model) for one in reading.ended[: MAX_ENTRIES - len(ended)]]
        if reading.context_tokens is not None:
            context_tokens = max(context_tokens or 0, reading.context_tokens)
        began_at = answer.began_at if began_at is None else began_at
        answered_at = answer.answered_at
        is_first = is_first or answer.is_first_on_connection
    if began_at is None:
        assert rejection is not None, "the list of models is empty"
        return rejection
    slots = sum(slots for slots, _ in by_model.values())
    if slots > MAX_SLOTS:
        return Failure(
            kind=FailureKind.UNUSABLE,
            message=f"the router's models have more than {MAX_SLOTS} slots in total",
            began_at=began_at,
            answered_at=answered_at,
        )
    return SlotCounts(
        began_at=began_at,
        answered_at=answered_at,
        slots=slots,
        busy_slots=sum(busy for _, busy in by_model.values()),
        newest_task=newest_task if models is None else None,  # each model numbers its own tasks
        is_first_on_connection=is_first,
        by_model=None if models is None else by_model,
        busy=tuple(busy),
        ended=tuple(ended),
        context_tokens=context_tokens,
    )
