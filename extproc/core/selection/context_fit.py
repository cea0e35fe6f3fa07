"""Keeps requests from endpoints whose slots' context is too short for their prompts.

A prompt that probably does not fit an endpoint goes only to endpoints with a longer context, if
there are any that can serve it. The needed length is one of those in the fleet, so that there are
few different constraints. A request whose prompt certainly fits nowhere is rejected; everything
else is left to the servers, which answer in words. The length of the answer rejects nothing:
llama-server cuts answers off, and most are far shorter than `max_tokens`.
"""

from enum import Enum
from typing import Final

from extproc.core.constraints import UNRESOLVED, Constraints
from extproc.core.fleet.catalog import ContextSizes
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.model_names import Unreported
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.prediction.prompt_sizes import PromptSizes
from extproc.core.prompt_blocks import CHARS_PER_TOKEN
from extproc.core.rejection import Reason
from extproc.core.request import Kind, Request, ResolvedRequest

MOST_RATIO: Final = 8.0
"""More tokens for each estimated one than any prompt has: shorter ones are not checked at all."""


class ContextFit(Enum):
    """What is done about prompts that are too long for some endpoints."""

    REJECT = "reject"
    ROUTE = "route"  # as REJECT, but what fits nowhere goes to the longest context
    OFF = "off"


class NeededContexts:
    """Reads the fleet and the lengths of prompts; changes nothing."""

    def __init__(
        self,
        fleet: Fleet,
        resolver: RequestResolver,
        contexts: ContextSizes,
        prompt_sizes: PromptSizes,
    ) -> None:
        self._fleet = fleet
        self._resolver = resolver
        self._contexts = contexts
        self._prompt_sizes = prompt_sizes

    def apply(
        self, resolved: ResolvedRequest, request: Request, mode: ContextFit
    ) -> ResolvedRequest | Reason:
        """The request with the context that it needs, or why it is rejected. O(1) for a prompt that
        probably fits every endpoint, else O(endpoints)."""
        estimated = request.prompt_tokens
        if estimated is None or mode is ContextFit.OFF:
            return resolved
        if estimated * MOST_RATIO <= self._contexts.least or not self._contexts.least:
            return resolved
        if request.kind is not Kind.GENERATION or request.weight_slots > 1:
            return resolved  # several prompts: each slot gets a part
        constraints = resolved.constraints
        if constraints == UNRESOLVED:
            return resolved
        catalog = self._resolver.names.catalog
        model = catalog.canonical_name(constraints.model) if constraints.model else ""
        likely = self._prompt_sizes.likely(model, estimated)
        surely = self._prompt_sizes.at_least(model, request.prompt_chars // CHARS_PER_TOKEN)
        if max(likely, surely) < self._contexts.least:
            return resolved
        sizes = self._sizes(constraints) | self._loadable_sizes(constraints)
        known = [tokens for tokens in sizes if tokens is not None]
        if not known:
            return resolved
        longest = max(known)
        is_known = len(known) == len(sizes)
        if mode is ContextFit.REJECT and is_known and surely > longest:
            return Reason.CONTEXT_LENGTH_EXCEEDED
        needed = min((tokens for tokens in known if tokens > likely), default=longest)
        if needed == min(known):
            return resolved
        return resolved._replace(constraints=constraints._replace(context_tokens=needed))

    def is_gone(self, constraints: Constraints) -> bool:
        """Whether none of those that can serve a queued request has the context that it needs, as
        one had when it was queued, or may report it. O(endpoints)."""
        needed = constraints.context_tokens
        names = self._resolver.of_pool(constraints.pool).names
        if not needed or names.unreported() is Unreported.SOME:
            return False
        others = constraints._replace(context_tokens=0)
        sizes = self._sizes(others) | self._loadable_sizes(others)
        return needed > max((tokens or needed for tokens in sizes), default=needed)

    def _sizes(self, constraints: Constraints) -> set[int | None]:
        """The contexts of the endpoints that can serve it, None for one that is not known."""
        return {
            endpoint.context_tokens
            for endpoint in self._fleet
            if not endpoint.is_removed and is_eligible(constraints, endpoint)
        }

    def _loadable_sizes(self, constraints: Constraints) -> set[int | None]:
        """The same of the models that machines could load for it."""
        if constraints.allowed is not None:
            return set()
        return {
            reading.context_tokens
            for readings in self._resolver.of_pool(constraints.pool).names.loadable.values()
            for name, reading in readings.items()
            if constraints.model is None or constraints.model == name
        }
