"""The properties of an HTTP request that a decision needs."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from extproc.core.address import Address
from extproc.core.bounds import BoundsOfRequest
from extproc.core.constraints import NO_NUMBERS, NO_POOL, UNCONSTRAINED, Constraints
from extproc.core.objective import NO_OBJECTIVE, Objective
from extproc.core.prompt_blocks import BLOCK_TOKENS
from extproc.core.request_groups import Groups

HOLD_MARGIN_S: Final = 5.0
"""How much longer Envoy waits than `Request.timeout_s`, so that our rejection comes first."""
CLIENT: Final = "client-"
"""The beginning of a tenant that is the client whose key was checked; its name follows."""
UNKNOWN_PROMPT_TOKENS: Final = 500
"""The assumed length of a prompt of which nothing else is known."""


MEDIA: Final = "media"
DAMAGED: Final = "damaged"
"""Traits of requests with images or sounds, and of those whose body no server can read."""

Adapters = str | frozenset[int] | None
"""An adapter's name, a server's numbers of adapters, or none."""


def client_of(tenant: str) -> str:
    """The name of the client whose key was checked; empty for any other tenant."""
    return tenant[len(CLIENT) :] if tenant.startswith(CLIENT) else ""


class Kind(Enum):
    """The kind of work for the server; only a generation fills the prefix cache."""

    GENERATION = "generation"
    EMBEDDING = "embedding"  # rerank too


@dataclass(slots=True, init=False)
class Request:
    """A request that takes slots. What could not be read has its default. It is never changed.

    `weight_slots` is how many slots it takes at once (at least 1; an endpoint with fewer slots
    gives all it has). `timeout_s` is the longest time in the queue; with 0 it is served at once or
    rejected. `prompt_blocks` are the chained hashes of the prompt's beginning (see
    `extproc.core.prompt_blocks`), `prompt_tokens` an estimate of its whole length, None if there is
    none: no latency is learned from such a request. `allowed` are the only endpoints that may serve
    it, None for any. `ttft_s` is its own SLO, in place of its objective's: it affects the choice of
    the endpoint but not the queue position, because a client could otherwise overtake others.
    `is_verbatim`: its body cannot be changed, or is not kept as its names demand no change; the
    server will read the client's model name.
    `is_uploading`: its body may be incomplete at Envoy; its arrival at the server is unknown.
    `tenant` identifies the key that it came with, empty without one; `fairness_id` a part of that
    tenant's use or, without a tenant, of its objective's. `adapter_numbers` are adapters that it
    names by the server's own numbers. `body_bytes` is how much of its body is held while it is
    queued. `traits` are what a server may fail at while it serves other requests: the path, then
    words: a grammar, tools, `MEDIA`, `DAMAGED`. `fingerprint` is equal for equal bodies, 0 if none
    was read; only this process can compute it. `is_partial`: the rest of its body comes only once
    it has a slot. `prompt_chars` are characters of text that are certainly in its prompt, 0 if that
    is not known.
    `api` is the API of its path, empty for the one that all servers have.
    `path` is its path without the query. With `is_strict` only servers of its model may get it,
    however names are matched otherwise. `pool` is the only pool whose endpoints may serve it, empty
    where no pools are configured.
    """

    id: str
    timeout_s: float
    weight_slots: int
    kind: Kind
    model: str | None
    adapter: str | None
    adapter_numbers: frozenset[int]
    objective: str | None
    tenant: str
    fairness_id: str
    session_id: str | None
    prompt_blocks: tuple[int, ...]
    prompt_tokens: int | None
    max_tokens: int | None
    allowed: frozenset[Address] | None
    ttft_s: float | None
    is_verbatim: bool
    body_bytes: int
    is_uploading: bool
    traits: str
    fingerprint: int
    is_partial: bool
    prompt_chars: int
    api: str
    path: str
    is_strict: bool
    pool: str

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the field's name
        timeout_s: float,
        weight_slots: int = 1,
        kind: Kind = Kind.GENERATION,
        model: str | None = None,
        adapter: str | None = None,
        adapter_numbers: frozenset[int] = NO_NUMBERS,
        objective: str | None = None,
        tenant: str = "",
        fairness_id: str = "",
        session_id: str | None = None,
        prompt_blocks: tuple[int, ...] = (),
        prompt_tokens: int | None = None,
        max_tokens: int | None = None,
        allowed: frozenset[Address] | None = None,
        ttft_s: float | None = None,
        is_verbatim: bool = False,
        body_bytes: int = 0,
        is_uploading: bool = False,
        traits: str = "",
        fingerprint: int = 0,
        is_partial: bool = False,
        prompt_chars: int = 0,
        api: str = "",
        path: str = "",
        is_strict: bool = False,
        pool: str = NO_POOL,
    ) -> None:
        # Written out: compiled, it takes a fortieth of the time of one that `dataclass` makes.
        if weight_slots < 1:
            raise ValueError(f"request {id!r} cannot weigh {weight_slots} slots")
        self.id = id
        self.timeout_s = timeout_s
        self.weight_slots = weight_slots
        self.kind = kind
        self.model = model
        self.adapter = adapter
        self.adapter_numbers = adapter_numbers
        self.objective = objective
        self.tenant = tenant
        self.fairness_id = fairness_id
        self.session_id = session_id
        self.prompt_blocks = prompt_blocks
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.allowed = allowed
        self.ttft_s = ttft_s
        self.is_verbatim = is_verbatim
        self.body_bytes = body_bytes
        self.is_uploading = is_uploading
        self.traits = traits
        self.fingerprint = fingerprint
        self.is_partial = is_partial
        self.prompt_chars = prompt_chars
        self.api = api
        self.path = path
        self.is_strict = is_strict
        self.pool = pool

    @property
    def likely_tokens(self) -> int:
        """The length of its prompt, or an estimate: at least what was read of it."""
        if self.prompt_tokens is not None:
            return self.prompt_tokens
        return max(UNKNOWN_PROMPT_TOKENS, len(self.prompt_blocks) * BLOCK_TOKENS)

    def has_trait(self, word: str) -> bool:
        """Whether it has this trait, which is not its path."""
        return word in self.traits.split(" ")[1:]

    @property
    def adapters(self) -> Adapters:
        """The adapters, which must be equal for all requests in a server's batch."""
        return self.adapter or self.adapter_numbers or None


class ResolvedRequest(NamedTuple):
    """A request after its names are resolved: its constraints, its objective, the `model` that its
    model name stands for, the bounds that it is under, whether it `is_strict` about its model, and
    its session and its flow, if these have a limit."""

    constraints: Constraints = UNCONSTRAINED
    objective: Objective = NO_OBJECTIVE
    model: str | None = None
    bounds: BoundsOfRequest = ()
    is_strict: bool = False
    groups: Groups = ()


UNCONSTRAINED_REQUEST = ResolvedRequest()


def in_time(request: Request, resolved: ResolvedRequest) -> Request:
    """The request with no longer a time in the queue than its bounds allow."""
    if not resolved.bounds:
        return request
    timeout_s = request.timeout_s
    for bound in resolved.bounds:
        if bound.limits.queue_timeout_s is not None:
            timeout_s = min(timeout_s, bound.limits.queue_timeout_s)
    return request if timeout_s == request.timeout_s else replace(request, timeout_s=timeout_s)
