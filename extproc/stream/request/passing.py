"""Which servers may get a request that takes no slot: those of its model, if it belongs to one.

A count of tokens, or a request for the properties of a model, belongs to the model that it names,
and loads none: a router gets it only if it has the model loaded, or is loading it.
"""

from random import Random
from typing import Final, NamedTuple

from extproc.core.address import Address
from extproc.core.constraints import Constraints, unconstrained
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.rejection import Reason
from extproc.core.request import Request
from extproc.stream.envoy.codec import RequestHead
from extproc.stream.request.body import RequestBody
from extproc.stream.request.names import UNSAYABLE, names_of, why_hidden
from extproc.stream.request.paths import Paths

NOT_LOADED: Final = (
    "No server that is ready has this model loaded, and a request that takes no slot does not load "
    "it."
)


class NotServed(NamedTuple):
    """Why no server may get it; an empty text stands for the text of the reason."""

    reason: Reason
    text: str = ""


def constraints_of(
    head: RequestHead,
    body: RequestBody,
    paths: Paths,
    resolver: RequestResolver,
    allowed: frozenset[Address] | None,
    random: Random | None = None,
    api: str = "",
) -> Constraints | NotServed:
    """The constraints of a request that takes no slot. Its body reaches the server as it is.

    A dry run passes its own `random` to draw from splits. `api` is what the server must have.
    """
    model: str | None = None
    adapter: str | None = None
    if api and not resolver.has_api(api):
        return NotServed(Reason.UNKNOWN_PATH)
    if paths.counts(head.method, head.path):
        model, adapter = names_of(head, body, resolver)
        hidden = why_hidden(body, resolver) if model is None else None
        if hidden is not None:
            return NotServed(Reason.BAD_REQUEST, hidden)
    elif paths.asks_about_a_model(head.method, head.path):
        model, adapter = resolver.names.split(head.queried_model or head.model)
    if model is None and adapter is None:
        any_of_pool = unconstrained(resolver.pool)
        if api or allowed is not None:
            return any_of_pool._replace(allowed=allowed, api=api)
        return any_of_pool
    request = Request(
        id=head.id,
        timeout_s=0.0,
        model=model,
        adapter=adapter,
        allowed=allowed,
        is_verbatim=True,
        api=api,
        pool=resolver.pool,
    )
    resolved = resolver.resolve(request, random)
    if isinstance(resolved, Reason):
        return NotServed(resolved, UNSAYABLE if resolved is Reason.BAD_REQUEST else "")
    found = resolved.constraints
    owner = paths.api_of(head.path)
    needs_loaded = head.may_load and (owner is None or owner.needs_loaded)
    return found if found.model is None else found._replace(is_loaded=needs_loaded)


def passing_request(head: RequestHead, constraints: Constraints) -> Request:
    """A request that takes no slot, as rules see it."""
    return Request(
        id=head.id,
        timeout_s=0.0,
        model=constraints.model,
        adapter=constraints.adapter,
        objective=head.objective,
        tenant=head.tenant,
        fairness_id=head.fairness_id,
        session_id=head.session_id,
        path=head.path,
        pool=constraints.pool,
    )
