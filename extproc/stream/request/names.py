"""The model and adapter names in a request, and their validation."""

from typing import Final

from extproc.core.fleet.resolver import RequestResolver
from extproc.core.request import Request
from extproc.stream.envoy.codec import RequestHead
from extproc.stream.request.body import RequestBody
from extproc.stream.request.lora import is_object

UNSAYABLE: Final = (
    "The model's name is an alias, and Coxswain can rewrite it only in a body "
    "that it can read completely and that is a JSON object. Use the name of the model itself."
)
HIDDEN: Final = (
    "The model of this request is unknown, and several models are served: the body {why}. Put the "
    "model before the messages or the file, or also send it in the header x-gateway-model-name."
)
BOTH: Final = "Give the name of an adapter or the server's numbers in lora, not both."
NOT_WHOLE: Final = (
    "Coxswain can apply the name of an adapter only to a body that it can read "
    "completely and that is a JSON object."
)

TOO_LATE: Final = (
    f"{NOT_WHOLE} If this one was, its adapter was reported only while the request was queued: "
    "send it again."
)


def names_of(
    head: RequestHead, body: RequestBody, resolver: RequestResolver
) -> tuple[str | None, str | None]:
    """The names of model and adapter. The body has priority over a gateway's header, because the
    server reads the body.
    """
    model, adapter = resolver.names.split(body.model or head.model)
    return model, head.adapter or adapter


def validate_names(
    model: str | None,
    adapter: str | None,
    body: RequestBody,
    raw: bytes,
    resolver: RequestResolver,
    *,
    is_whole: bool,
) -> str | None:
    """Why a request with these names cannot be served, as text for the client; else None.

    `raw` are the bytes of the body that are here, `is_whole` says that these are all.
    """
    if adapter is not None:
        if body.adapter_numbers is not None:
            return BOTH
        if not is_whole or not is_object(raw):
            return NOT_WHOLE
    return why_hidden(body, resolver) if model is None else None


def why_hidden(body: RequestBody, resolver: RequestResolver) -> str | None:
    """Why a request of which no model was found is rejected, as text for the client; None if it may
    go anywhere."""
    if body.unread is None or not resolver.must_know_models:
        return None
    return HIDDEN.format(why=body.unread)


def why_not_after_all(request: Request) -> str:
    """The same for a request that was queued until a server reported its model as an adapter."""
    return BOTH if request.adapter_numbers else TOO_LATE
