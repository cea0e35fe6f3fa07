"""Why a request is rejected; the reason is the metric's label."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

NONE_BY_RULES: Final = "No server that the rules of this service allow for the request is ready."
"""The detail of `NO_ENDPOINT` where there may be others."""


class Reason(Enum):
    """Why a request was rejected; clients read the value in `x-coxswain-reason`."""

    QUEUE_FULL = "queue-full"
    QUEUE_TIMEOUT = "queue-timeout"
    NO_ENDPOINT = "no-endpoint"
    SHUTTING_DOWN = "shutting-down"
    BAD_REQUEST = "bad-request"
    CANCELLED = "cancelled"
    UPLOAD_STALLED = "upload-stalled"
    SHED = "shed"
    EVICTED = "evicted"
    MODEL_NOT_FOUND = "model-not-found"
    BLOCKED_PATH = "blocked-path"
    UNKNOWN_PATH = "unknown-path"
    INTERNAL_ERROR = "internal-error"
    POISON_REQUEST = "poison-request"
    RATE_LIMITED = "rate-limited"
    CONTEXT_LENGTH_EXCEEDED = "context-length-exceeded"
    INVALID_API_KEY = "invalid-api-key"
    MODEL_FAILED = "model-failed"
    UNSUPPORTED_ENCODING = "unsupported-encoding"
    CONVERSATION_NOT_FOUND = "conversation-not-found"
    REJECTED_BY_RULE = "rejected-by-rule"
    BOUND_REACHED = "bound-reached"
    BUDGET_USED_UP = "budget-used-up"
    OBJECTIVE_NOT_ALLOWED = "objective-not-allowed"
    NO_POOL = "no-pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A rejection; `retry_after_s` is when a retry may succeed, as far as is known. `detail` is for
    the client, where the reason alone does not say it."""

    reason: Reason
    waited_s: float
    retry_after_s: float
    detail: str = ""
