"""What the key of a client permits: which models and which objectives its requests may name.

A request that takes a slot must name a model, so that no server of another one gets it; of the
others only the names count that they have.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from extproc.core.client_limits import ClientLimit
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.rejection import Reason
from extproc.core.request import Request
from extproc.stream.envoy.codec import RequestHead
from extproc.stream.model_list import Models
from extproc.stream.request.body import RequestBody
from extproc.stream.request.names import HIDDEN, names_of

UNNAMED: Final = (
    "This API key may use some models only, and the request names none: name one of those that "
    "/v1/models lists."
)
NO_ACCESS: Final = "The model `{name}` does not exist or you do not have access to it."
NO_OBJECTIVE_HERE: Final = "This API key may use no objective of this service's pool."
NO_OBJECTIVE: Final = "This API key may not use the objective `{name}`."


class Forbidden(NamedTuple):
    """Why the key does not permit a request, as text for its client."""

    reason: Reason
    text: str


def permitted(
    request: Request, body: RequestBody, limit: ClientLimit | None, resolver: RequestResolver
) -> Request | Forbidden:
    """The request that takes slots as the key permits it: with its objective, and strictly for
    its model."""
    if limit is None:
        return request
    if limit.models is not None:
        if body.unread is not None:
            return Forbidden(Reason.BAD_REQUEST, HIDDEN.format(why=body.unread))
        if request.model is None:
            return Forbidden(Reason.BAD_REQUEST, UNNAMED)
        if not resolver.is_among(request.model, limit.models):
            return _no_access(request.model)
        request = replace(request, is_strict=True)
    if limit.objectives is not None:
        asked = request.objective
        name = asked and (resolver.objective_named(asked).name or asked)
        if name is not None and name not in limit.objectives:
            text = NO_OBJECTIVE.format(name=asked)
            return Forbidden(Reason.OBJECTIVE_NOT_ALLOWED, text)
        if resolver.objective_of(request).name not in limit.objectives:
            own = _first_known(limit.objectives, resolver)
            if own is None:
                return Forbidden(Reason.OBJECTIVE_NOT_ALLOWED, NO_OBJECTIVE_HERE)
            request = replace(request, objective=own)
    return request


def _first_known(objectives: Sequence[str], resolver: RequestResolver) -> str | None:
    """The first of the objectives that the pool of a request has; any without pools."""
    known = (name for name in objectives if resolver.objective_named(name).name == name)
    return next(known, None) if resolver.pool else objectives[0]


def may_pass(
    head: RequestHead, body: RequestBody, limit: ClientLimit | None, resolver: RequestResolver
) -> Forbidden | None:
    """Why a request that takes no slot is not permitted; None if it is."""
    if limit is None or limit.models is None:
        return None
    named = {names_of(head, body, resolver)[0], resolver.names.split(head.queried_model)[0]}
    for name in named - {None}:
        assert name is not None
        if not resolver.is_among(name, limit.models):
            return _no_access(name)
    return None


def listed(models: Models, limit: ClientLimit | None, resolver: RequestResolver) -> Models:
    """Those of the models that the key permits."""
    if limit is None or limit.models is None:
        return models
    allowed = limit.models
    return {
        name: entry
        for name, entry in models.items()
        if resolver.is_among(resolver.names.split(name)[0] or name, allowed)
    }


def _no_access(name: str) -> Forbidden:
    return Forbidden(Reason.MODEL_NOT_FOUND, NO_ACCESS.format(name=name))
