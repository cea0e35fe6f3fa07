"""Errors of calls: a gRPC status code, and a text that says what to do."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, TypeVar

import grpc

Calls = TypeVar("Calls")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

Context = grpc.aio.ServicerContext[Any, Any]

QUOTED_CHARS: Final = 80


class CallError(Exception):  # it is an answer, as good as any other
    """The call is rejected. `code` is for programs, `text` for people."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def invalid(text: str) -> CallError:
    """An argument is invalid."""
    return CallError(grpc.StatusCode.INVALID_ARGUMENT, text)


def forbidden(text: str) -> CallError:
    """No caller is allowed to do this."""
    return CallError(grpc.StatusCode.PERMISSION_DENIED, text)


def not_found(text: str) -> CallError:
    """The object does not exist."""
    return CallError(grpc.StatusCode.NOT_FOUND, text)


def already(text: str) -> CallError:
    """The object exists already."""
    return CallError(grpc.StatusCode.ALREADY_EXISTS, text)


def not_now(text: str) -> CallError:
    """The present state forbids it."""
    return CallError(grpc.StatusCode.FAILED_PRECONDITION, text)


def at_limit(text: str) -> CallError:
    """There are as many of them as there may be."""
    return CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


def quoted(text: str) -> str:
    """A caller's text, shortened to one line for error messages."""
    cut = text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "..."
    return repr(cut)


def maps_errors(
    method: Callable[[Calls, RequestT, Context], Awaitable[ResponseT]],
) -> Callable[[Calls, RequestT, Context], Awaitable[ResponseT]]:
    """Let a method of a service raise `CallError`, which becomes the call's status."""

    @wraps(method)
    async def answer(calls: Calls, request: RequestT, context: Context) -> ResponseT:
        try:
            if request is None:
                raise invalid("not a valid message of this call; see admin.proto")
            return await method(calls, request, context)
        except CallError as error:
            await context.abort(error.code, error.text)

    return answer
