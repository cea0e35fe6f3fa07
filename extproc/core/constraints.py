"""What a request may use: the question that decides which endpoints it can wait for.

Requests of equal demand share a lane of the line and a ranking of the endpoints, so that
waiting for one model never blocks another.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from extproc.core.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterable

IndexKey = Address | str | None
"""A handle by which an endpoint finds the lanes that may suit it: its address, a model, any."""


NO_NUMBERS: Final[frozenset[int]] = frozenset()
"""One for all requests: each empty set would be a new one, of 216 bytes."""


class Constraints(NamedTuple):
    """The endpoints that serve `model` with `adapter` and are `allowed`; None: no matter.

    `model_name_on_wire` is the name that the server will read, where that is another name.
    `adapter_numbers` are adapters that the request names by numbers.
    """

    model: str | None = None
    adapter: str | None = None
    allowed: frozenset[Address] | None = None
    model_name_on_wire: str | None = None
    adapter_numbers: frozenset[int] = NO_NUMBERS

    def index_keys(self) -> Iterable[IndexKey]:
        """Where its lane is found: at each allowed address, else at its model, else everywhere."""
        return (self.model,) if self.allowed is None else self.allowed


@lru_cache(maxsize=1024)
def constraints_for(
    model: str | None,
    adapter: str | None,
    said: str | None,
    adapter_numbers: frozenset[int],
) -> Constraints:
    """The demand of these parts, of any endpoint: one for all requests that want the same."""
    return Constraints(model, adapter, None, said, adapter_numbers)


UNCONSTRAINED = Constraints()
UNRESOLVED = Constraints(allowed=frozenset())
"""Of a request whose names may stand for what no server has told yet: for now nobody suits."""
