"""One discovery stream over grpc.aio: a reader and a writer, ended together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TypeAlias

import grpc.aio
from google.protobuf.message import DecodeError

from extproc.pb.base_pb2 import ControlPlane
from extproc.pb.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from extproc.xds.subscription import Question, SubscriptionError

log = logging.getLogger("coxswain.xds")

CONTROL_PLANE = ControlPlane(identifier="coxswain")
MAX_NODE_ID_CHARS = 100
MAX_ERROR_CHARS = 500
MAX_SHOWN_NAMES = 3
NO_MESSAGE = "not a valid DiscoveryRequest"

StreamContext: TypeAlias = "grpc.aio.ServicerContext[DiscoveryRequest, DiscoveryResponse]"


async def converse(
    read: Coroutine[None, None, None],
    write: Coroutine[None, None, None],
    context: StreamContext,
    node_id: Callable[[], str],
    forget: Callable[[], None],
) -> None:
    """Run both until either ends, then `forget`; a caller that speaks wrongly is told so."""
    tasks = (asyncio.create_task(read), asyncio.create_task(write))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except (DecodeError, SubscriptionError) as error:
        fault = NO_MESSAGE if isinstance(error, DecodeError) else str(error)
        log.warning("discovery rejected Envoy %r: %s", node_id(), fault)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, fault)
    finally:
        for task in tasks:
            task.cancel()
        forget()
        await asyncio.gather(*tasks, return_exceptions=True)


def node_of(message: DiscoveryRequest) -> str:
    """How the Envoy calls itself, in a length that a log line bears."""
    return message.node.id[:MAX_NODE_ID_CHARS]


def question(message: DiscoveryRequest) -> Question:
    """Its message."""
    return Question(
        names=tuple(message.resource_names),
        nonce=message.response_nonce,
        type_url=message.type_url,
        error=message.error_detail.message if message.HasField("error_detail") else None,
    )


def in_short(error: str) -> str:
    """Envoy's reason for a refusal, on one line that no terminal obeys."""
    line = " ".join(error.split())[:MAX_ERROR_CHARS]
    return line if line.isprintable() else repr(line)


def some_of(names: tuple[str, ...]) -> str:
    """The first few names, in a length that a log line bears."""
    more = len(names) - MAX_SHOWN_NAMES
    shown = ", ".join(map(repr, names[:MAX_SHOWN_NAMES]))
    return shown if more <= 0 else f"{shown} and {more} more"
