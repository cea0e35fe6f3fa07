"""What a rule of your own sees and may answer, version 1 (docs/rules.md).

Fields and answers are only ever added here, each with a default; what changes otherwise gets a new
version beside this one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


def _no_labels() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, as far as it was read.

    `path` is without its query. `model` and `adapter` are the names that the client wrote,
    `objective` is what it selected or None, `tenant` the client whose key it came with, empty where
    no keys are checked. `kind` is `generation` or `embedding`. `prompt_tokens` is an estimate.
    `slots` is how many it takes at once, if it takes any. `time` is now, in Unix seconds. `pool` is
    its pool, empty where no pools are configured.
    """

    id: str = ""
    path: str = ""
    kind: str = "generation"
    model: str | None = None
    adapter: str | None = None
    objective: str | None = None
    tenant: str = ""
    fairness_id: str = ""
    session_id: str | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    slots: int = 1
    time: float = 0.0
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server. `address` is its IP and port, `labels` are those of the settings; `models` and
    `adapters` are the names that it reports, `context_tokens` is the context of a slot. `runner` is
    its kind of server, such as `llama-server`, empty before it is known. `pool` is its pool, empty
    where no pools are configured."""

    name: str = ""
    address: str = ""
    labels: Mapping[str, str] = field(default_factory=_no_labels)
    models: frozenset[str] = frozenset()
    adapters: frozenset[str] = frozenset()
    context_tokens: int | None = None
    runner: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Objective:
    """An answer of `admit`: the request belongs to this objective of the settings."""

    name: str


@dataclass(frozen=True, slots=True)
class Tenant:
    """An answer of `admit`: the request counts for this tenant in fairness."""

    name: str


@dataclass(frozen=True, slots=True)
class Reject:
    """An answer of `admit`: the request is rejected. The client reads the reason."""

    reason: str


class Rule:
    """The base of a rule, which has any of these methods:

        filter(self, request: Request, endpoint: Endpoint) -> bool | str
        cost(self, request: Request, endpoint: Endpoint) -> float
        admit(self, request: Request) -> Objective | Tenant | Reject | None

    `filter`: whether the endpoint may serve the request; a text is why it may not. `cost`: seconds
    that are added to ours where the request may choose, at least 0. `admit`: None changes nothing.

    It is made without arguments at a start and at each reload. Its methods are called in the
    process that decides, one after the other: they must not wait for anything.
    """
