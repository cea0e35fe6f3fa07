"""The record of one exchange, from which logs, metrics and traces are made."""

from enum import Enum
from typing import NamedTuple

from extproc.core.address import Address
from extproc.core.constraints import FIRST_TIER, NO_POOL
from extproc.core.price import FREE, Price
from extproc.core.rejection import Reason


class Outcome(Enum):
    """How an exchange ended, as a label."""

    SERVED = "served"
    PASSED = "passed"  # took no slot
    REJECTED = "rejected"  # got an error; the reason says why
    WITHDRAWN = "withdrawn"  # its client left while it was queued
    BROKEN = "broken"  # it broke off after it got a slot: client left or server died


class SeenTokens(NamedTuple):
    """What scrapes showed of a request: the tokens of its whole prompt, those of them that were
    processed, so that the others were cached, and those that were generated when it was seen last,
    at a monotonic second."""

    prompt: int | None
    processed: int | None
    generated: int
    at: float


class ExchangeRecord:
    """One exchange, recorded once at its end. Times are seconds; `status` is that of the response
    or of the rejection, 0 if there was neither.

    `request_id` is the client's `x-request-id`; `endpoint` is the one that served, or the picked
    one, and `endpoint_name` how people know it, empty if there is none; `path` has no query.
    `began_at` and `decided_at` are monotonic; `decided_at` is when enough of the request had come
    for the decision, and its wait began if it was queued; None if it ended before that. `pick_s` is
    the time that the decision took. `trace_parent` is the caller's `traceparent` as received,
    unchecked. `criticality` is empty if the request takes no slot.
    `input_tokens` and `output_tokens` are the server's own counts, None where the response did not
    pass the picker.
    `client` is the name of the client whose key Envoy checked, empty without; `objective` is that
    of the settings. `opened_at` is when it got its slots (monotonic), None if it got none; it held
    them for `slot_s` slot-seconds until its server or its client was done, and was up to `tasks`
    tasks there. `is_response_read`: the response passed the picker, so its counts are those of the
    record. `tier` and `price` are those of the endpoint. `queued_before` is the number of requests
    that were queued when it was, None if it was not; `is_cold` says that its model had to be loaded
    first, `is_stream` that its response was a stream. `prompt_s` and `generated_s` are the server's
    own times for the prompt and for the response, `seen` is what scrapes showed; each is None if it
    is not known. `pool` is the pool that it was for, empty where no pools are configured.
    `is_servers_fault`: Envoy reported that the server broke the response off. `is_overflow`: it
    ended because the context of the server was full.
    """

    def __init__(
        self,
        *,
        exchange_id: str,
        request_id: str,
        outcome: Outcome,
        reason: Reason | None,
        endpoint: Address | None,
        status: int,
        attempts: int,
        waited_s: float,
        first_token_s: float | None,
        duration_s: float,
        began_at: float = 0.0,
        decided_at: float | None = None,
        pick_s: float = 0.0,
        path: str = "",
        method: str = "",
        model: str = "",
        criticality: str = "standard",
        trace_parent: str = "",
        endpoint_name: str = "",
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        client: str = "",
        objective: str = "",
        opened_at: float | None = None,
        slot_s: float = 0.0,
        is_response_read: bool = False,
        tasks: int = 1,
        tier: int = FIRST_TIER,
        price: Price = FREE,
        queued_before: int | None = None,
        is_cold: bool = False,
        is_stream: bool = False,
        prompt_s: float | None = None,
        generated_s: float | None = None,
        seen: SeenTokens | None = None,
        pool: str = NO_POOL,
        is_servers_fault: bool = False,
        is_overflow: bool = False,
    ) -> None:
        self.exchange_id = exchange_id
        self.request_id = request_id
        self.outcome = outcome
        self.reason = reason
        self.endpoint = endpoint
        self.status = status
        self.attempts = attempts
        self.waited_s = waited_s
        self.first_token_s = first_token_s
        self.duration_s = duration_s
        self.began_at = began_at
        self.decided_at = decided_at
        self.pick_s = pick_s
        self.path = path
        self.method = method
        self.model = model
        self.criticality = criticality
        self.trace_parent = trace_parent
        self.endpoint_name = endpoint_name
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cached_tokens = cached_tokens
        self.client = client
        self.objective = objective
        self.opened_at = opened_at
        self.slot_s = slot_s
        self.is_response_read = is_response_read
        self.tasks = tasks
        self.tier = tier
        self.price = price
        self.queued_before = queued_before
        self.is_cold = is_cold
        self.is_stream = is_stream
        self.prompt_s = prompt_s
        self.generated_s = generated_s
        self.seen = seen
        self.pool = pool
        self.is_servers_fault = is_servers_fault
        self.is_overflow = is_overflow

    @property
    def ended_at(self) -> float:
        """When it ended, in monotonic seconds."""
        return self.began_at + self.duration_s
