"""The constraints of a request, which decide the endpoints that can serve it.

Requests with equal constraints share a constraint queue and a ranking of the endpoints, so that a
wait for one model never blocks another.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from extproc.core.address import Address

IndexKey = Address | str | None
"""The key by which an endpoint finds the queues that it may serve: its address, a model, any."""


NO_POOL: Final = ""
"""The pool of all endpoints and requests where no pools are configured."""
FIRST_TIER: Final = 1
"""The endpoints of the house, which any request may use."""
NO_NUMBERS: Final[frozenset[int]] = frozenset()
"""Shared by all requests: each empty set would take 216 bytes."""


class Constraints(NamedTuple):
    """The endpoints that serve `model` with `adapter` and are `allowed`; None: no constraint.

    `model_name_on_wire` is the name that the server will read, if that is a different one.
    `adapter_numbers` are adapters that the request names by number. `context_tokens` is the context
    that a slot must have; 0 for any. With `is_loaded`, a router must have the model loaded, or be
    loading it. `by_rules` are those that the operators' rules leave; None for all.
    `api` is the API that the server must have, empty for the one that all have. `tier` is the tier
    of the endpoints: only a spill (`extproc.core.scheduler.spilling`) asks for any but the first.
    `pool` is their pool; empty where no pools are configured.
    """

    model: str | None = None
    adapter: str | None = None
    allowed: frozenset[Address] | None = None
    model_name_on_wire: str | None = None
    adapter_numbers: frozenset[int] = NO_NUMBERS
    context_tokens: int = 0
    is_loaded: bool = False
    by_rules: frozenset[Address] | None = None
    api: str = ""
    tier: int = FIRST_TIER
    pool: str = NO_POOL

    def index_keys(self) -> Iterable[IndexKey]:
        """The keys of its queue: each allowed address, else its model, else None for any."""
        return (self.model,) if self.allowed is None else self.allowed


@lru_cache(maxsize=1024)
def constraints_for(
    model: str | None,
    adapter: str | None,
    model_name_on_wire: str | None,
    adapter_numbers: frozenset[int],
    api: str = "",
    pool: str = NO_POOL,
) -> Constraints:
    """The constraints of these parts, on any endpoint of the pool; cached, so that equal ones are
    shared."""
    return Constraints(
        model, adapter, None, model_name_on_wire, adapter_numbers, api=api, pool=pool
    )


UNCONSTRAINED = Constraints()
UNRESOLVED = Constraints(allowed=frozenset())
"""For a request with names that no server has reported yet: no endpoint is eligible for now."""


def unconstrained(pool: str) -> Constraints:
    """Those of a request that any endpoint of its pool can serve."""
    return constraints_for(None, None, None, NO_NUMBERS, "", pool) if pool else UNCONSTRAINED


def qualified(pool: str, name: str) -> str:
    """The name of a model as one word with that of its pool; the name itself without pools. Names
    of pools have no slash."""
    return f"{pool}/{name}" if pool else name
