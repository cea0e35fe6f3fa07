"""What requests ask for: reading bodies that anybody may have written. Pure."""

import json
from typing import Any

MAX_CHOICES = 64
"""How many answers (`n`) or inputs one request may ask for."""

Json = dict[str, Any]


class BadRequestError(Exception):
    """The request is not what its path takes; `status` and `kind` are how that is answered."""

    status = 400
    kind = "invalid_request_error"


class NotSupportedError(BadRequestError):
    """The server was started without what the path needs."""

    status = 501
    kind = "not_supported_error"

    def __init__(self, what: str, flag: str) -> None:
        super().__init__(f"This server does not support {what}. Start it with `{flag}`")


class ContextExceededError(BadRequestError):
    """The slots' shared context was full: all that ran ended."""

    status = 500
    kind = "server_error"

    def __init__(self) -> None:
        super().__init__("Context size has been exceeded.")


def read_object(body: bytes) -> Json:
    """The body as a JSON object; raises `BadRequestError` when it is anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(value, dict):
        raise BadRequestError("the body is not a JSON object")
    return value


def read_prompt(body: Json) -> bytes:
    """The prompt; one that is no text (a list of tokens) counts as its JSON."""
    prompt = body.get("prompt")
    if prompt is None:
        raise BadRequestError("key 'prompt' not found")
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    return text.encode(errors="replace")


def read_messages(body: Json) -> bytes:
    """The conversation as one prompt, such that a longer one begins like the shorter."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise BadRequestError("'messages' is required")
    lines = (
        f"{message.get('role')}: {message.get('content')}\n"
        for message in messages
        if isinstance(message, dict)
    )
    return "".join(lines).encode(errors="replace")


def read_input(body: Json) -> bytes:
    """The input of a request for a response: a text, or a conversation."""
    given = body.get("input")
    if isinstance(given, str):
        return f"{body.get('instructions') or ''}\n{given}".encode(errors="replace")
    if not isinstance(given, list):
        raise BadRequestError("'input' must be a string or array of objects")
    return read_messages({"messages": given})


def read_infill(body: Json) -> bytes:
    """What stands before and behind the gap that is to be filled."""
    sides = [body.get(name) for name in ("input_prefix", "input_suffix")]
    if not all(isinstance(side, str) for side in sides):
        raise BadRequestError('"input_prefix" and "input_suffix" must be strings')
    return "\0".join(map(str, (*sides, body.get("prompt") or ""))).encode(errors="replace")


def read_documents(body: Json) -> tuple[bytes, list[bytes]]:
    """The query and the documents of a request to rank them."""
    documents = body.get("documents", body.get("texts"))
    if not isinstance(body.get("query"), str):
        raise BadRequestError('"query" must be provided')
    if not isinstance(documents, list) or not 1 <= len(documents) <= MAX_CHOICES:
        raise BadRequestError(f'"documents" must be 1 to {MAX_CHOICES} texts')
    return body["query"].encode(errors="replace"), [
        str(each).encode(errors="replace") for each in documents
    ]


def read_whole(body: Json, names: tuple[str, ...], otherwise: int) -> int:
    """The first of the named numbers that is given; raises when it is no whole number."""
    for name in names:
        value = body.get(name)
        if value is not None:
            if not isinstance(value, int):
                raise BadRequestError(f"'{name}' must be a whole number")
            return value
    return otherwise


def wants_usage(body: Json) -> bool:
    """Whether a streamed chat shall end with an event about its usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))
