"""What the core asks of the operators' own rules."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.request import Request


class Rules(Protocol):
    """The rules that are loaded. No call raises, and each is bounded in time; an answer may differ
    from the one before, as rules may depend on the time."""

    has_filters: bool
    """Whether any of them excludes endpoints."""
    has_costs: bool
    """Whether any of them adds to costs."""
    version: int
    """Grows when a rule is switched off."""

    def allowed(self, request: Request, endpoints: Iterable[Endpoint]) -> frozenset[Address] | None:
        """Those of the endpoints that may serve the request; None if all of them may."""

    def why_not(self, request: Request, endpoint: Endpoint) -> Sequence[str]:
        """Why the endpoint may not serve the request; empty if it may."""

    def why_nowhere(self, request: Request, endpoints: Iterable[Endpoint]) -> str:
        """Why none of the endpoints may, as a sentence; empty if one may."""

    def costs(self, request: Request, endpoint: Endpoint) -> Iterable[tuple[str, float]]:
        """The seconds that each rule adds at an endpoint, by the rule's name."""

    def cost_s(self, request: Request, endpoint: Endpoint) -> float:
        """The seconds that all of them add."""

    def admit(self, request: Request) -> Request | str:
        """The request with the objective and tenant that it gets, or why it is rejected."""

    def problems(self) -> Sequence[str]:
        """Which rules are switched off and why, as sentences."""
