"""Errors of calls: a gRPC status code, and a text that says what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, TypeVar

import grpc

Calls = TypeVar("Calls")
Question = TypeVar("Question")
Answer = TypeVar("Answer")

QUOTED_CHARS: Final = 80


class Refused(Exception):  # noqa: N818  # it is an answer, as good as any other
    """The call is rejected. `code` is for programs, `text` for people."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def invalid(text: str) -> Refused:
    """An argument is invalid."""
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, text)


def forbidden(text: str) -> Refused:
    """No caller is allowed to do this."""
    return Refused(grpc.StatusCode.PERMISSION_DENIED, text)


def not_found(text: str) -> Refused:
    """The object does not exist."""
    return Refused(grpc.StatusCode.NOT_FOUND, text)


def already(text: str) -> Refused:
    """The object exists already."""
    return Refused(grpc.StatusCode.ALREADY_EXISTS, text)


def not_now(text: str) -> Refused:
    """The present state forbids it."""
    return Refused(grpc.StatusCode.FAILED_PRECONDITION, text)


def quoted(text: str) -> str:
    """A caller's text, shortened to one line for error messages."""
    cut = text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "..."
    return repr(cut)


def courteous(
    method: Callable[[Calls, Question, grpc.aio.ServicerContext[Any, Any]], Awaitable[Answer]],
) -> Callable[[Calls, Question, grpc.aio.ServicerContext[Any, Any]], Awaitable[Answer]]:
    """Let a method of a service raise `Refused`, which becomes the call's status."""

    @wraps(method)
    async def answer(
        calls: Calls, question: Question, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Answer:
        try:
            if question is None:
                raise invalid("not a valid message of this call; see admin.proto")
            return await method(calls, question, context)
        except Refused as refused:
            await context.abort(refused.code, refused.text)

    return answer
