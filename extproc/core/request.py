"""What one HTTP request asks of the fleet, as far as a decision needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from extproc.core.address import Address
from extproc.core.constraints import NO_NUMBERS
from extproc.core.prompt_blocks import BLOCK_TOKENS

HOLD_MARGIN_S: Final = 5.0
"""Envoy's patience beyond `Request.timeout_s`, so that our refusal always comes first."""
UNKNOWN_PROMPT_TOKENS: Final = 500
"""For how long a prompt is taken of which nothing else is known."""


Adapters = str | frozenset[int] | None
"""An adapter's name, a server's numbers of some, or none."""


class Kind(Enum):
    """What the server is asked to do; only a generation fills the prompt cache."""

    GENERATION = "generation"
    EMBEDDING = "embedding"  # rerank too


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that takes slots. What could not be read stays at its default.

    `weight_slots` is how many slots it takes at once (at least 1; an endpoint with fewer
    slots gives it all it has). `timeout_s` is how long it may wait in line; 0 means
    that it is served at once or not at all. `prompt_blocks` are the chained hashes of the
    prompt's beginning (see `extproc.core.prompt_blocks`), `prompt_tokens` an estimate of its whole
    length, None where nothing tells it: such a request teaches no speeds. `allowed` names the
    only endpoints that may serve it, None for any. `ttft_s` is a promise of its own, in place of
    its objective's: it steers where the request goes, never its turn in line, or a client could
    ask its way past the others. `is_verbatim` tells that its body cannot be changed: the server
    will read the model's name that the client wrote. `is_uploading` tells that its body may not be
    complete at Envoy yet: nobody knows when it reaches the server. `tenant` is whose key it came
    with, empty without one; `fairness_id` a part of that tenant's use, or, without a tenant, of its
    objective's. `adapter_numbers` are adapters that it names by the server's own numbers.
    `body_bytes` is how much of its body has to be kept while it waits. `traits` names what a
    server may fail at while it serves other requests well: the path, a grammar, images.
    `fingerprint` is equal for equal bodies, 0 where none was read; only this process knows how it
    is made.
    `is_partial` tells that the rest of its body comes only once it has a slot.
    """

    id: str
    timeout_s: float
    weight_slots: int = 1
    kind: Kind = Kind.GENERATION
    model: str | None = None
    adapter: str | None = None
    adapter_numbers: frozenset[int] = NO_NUMBERS
    objective: str | None = None
    tenant: str = ""
    fairness_id: str = ""
    session_id: str | None = None
    prompt_blocks: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    allowed: frozenset[Address] | None = None
    ttft_s: float | None = None
    is_verbatim: bool = False
    body_bytes: int = 0
    is_uploading: bool = False
    traits: str = ""
    fingerprint: int = 0
    is_partial: bool = False

    def __post_init__(self) -> None:
        if self.weight_slots < 1:
            raise ValueError(f"request {self.id!r} cannot weigh {self.weight_slots} slots")

    @property
    def likely_tokens(self) -> int:
        """The length of its prompt, or what to take for it: at least what was read of it."""
        if self.prompt_tokens is not None:
            return self.prompt_tokens
        return max(UNKNOWN_PROMPT_TOKENS, len(self.prompt_blocks) * BLOCK_TOKENS)

    @property
    def adapters(self) -> Adapters:
        """What a server's batches must agree in."""
        return self.adapter or self.adapter_numbers or None
