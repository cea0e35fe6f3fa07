"""Keeps requests from endpoints whose slots' context is too short for their prompts.

A prompt that probably does not fit an endpoint goes only to endpoints with a longer context, if
there are any that can serve it. The needed length is one of those in the fleet, so that there are
few different constraints. A request whose prompt certainly fits nowhere is rejected; everything
else is left to the servers, which answer in words. The length of the answer rejects nothing:
llama-server cuts answers off, and most are far shorter than `max_tokens`.
"""

from typing import Final

from extproc.core.constraints import UNRESOLVED, Constraints
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.model_names import Unreported
from extproc.core.prompt_blocks import CHARS_PER_TOKEN
from extproc.core.rejection import Reason
from extproc.core.request import Kind, Request, ResolvedRequest
from extproc.core.scheduler.options import ContextFit
from extproc.core.scheduler.state import State

MOST_RATIO: Final = 8.0
"""More tokens for each estimated one than any prompt has: shorter ones are not checked at all."""


def fit_context(
    state: State, resolved: ResolvedRequest, request: Request
) -> ResolvedRequest | Reason:
    """The request with the context that it needs, or why it is rejected. O(1) for a prompt that
    probably fits every endpoint, else O(endpoints)."""
    estimated, mode = request.prompt_tokens, state.options.context_fit
    if estimated is None or mode is ContextFit.OFF:
        return resolved
    if estimated * MOST_RATIO <= state.contexts.least or not state.contexts.least:
        return resolved
    if request.kind is not Kind.GENERATION or request.weight_slots > 1:
        return resolved  # several prompts: each slot gets a part
    constraints = resolved.constraints
    if constraints == UNRESOLVED:
        return resolved
    catalog = state.resolver.names.catalog
    model = catalog.canonical_name(constraints.model) if constraints.model else ""
    likely = state.prompt_sizes.likely(model, estimated)
    surely = state.prompt_sizes.at_least(model, request.prompt_chars // CHARS_PER_TOKEN)
    if max(likely, surely) < state.contexts.least:
        return resolved
    sizes = _sizes(state, constraints) | _loadable_sizes(state, constraints)
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


def is_context_gone(state: State, constraints: Constraints) -> bool:
    """Whether none of those that can serve a queued request has the context that it needs, as one
    had when it was queued, or may report it. O(endpoints)."""
    needed = constraints.context_tokens
    if not needed or state.resolver.names.unreported() is Unreported.SOME:
        return False
    others = constraints._replace(context_tokens=0)
    sizes = _sizes(state, others) | _loadable_sizes(state, others)
    return needed > max((tokens or needed for tokens in sizes), default=needed)


def _sizes(state: State, constraints: Constraints) -> set[int | None]:
    """The contexts of the endpoints that can serve it, None for one that is not known."""
    return {
        endpoint.context_tokens
        for endpoint in state.fleet
        if not endpoint.is_removed and is_eligible(constraints, endpoint)
    }


def _loadable_sizes(state: State, constraints: Constraints) -> set[int | None]:
    """The same of the models that machines could load for it."""
    if constraints.allowed is not None:
        return set()
    return {
        reading.context_tokens
        for readings in state.resolver.names.loadable.values()
        for name, reading in readings.items()
        if constraints.model is None or constraints.model == name
    }
