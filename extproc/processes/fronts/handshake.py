"""The first words on a connection between two machines: who connects, and whether it may.

The one that connects names the cluster, shows the token, and says which leader it means. Until that
is accepted nothing else is read. Then both go on with another protocol on the same connection.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar, cast

from google.protobuf.message import DecodeError

from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.fronts.lengths import MessageReader, TooLongError, with_length

MAX_BYTES: Final = 64 * 1024
HANDSHAKE_S: Final = 5.0
"""How long a connection may take to say who it is."""
NOT_OURS: Final = "it does not speak our protocol"

WordsT = TypeVar("WordsT", pb.Greeting, pb.Welcome)


class HandshakeError(Exception):
    """The other side does not accept this, or is none of ours."""


class HandshakeServer(asyncio.Protocol):
    """The side that is connected to. `accept` gets the greeting, and returns the protocol that goes
    on, or raises `HandshakeError`, whose text goes to the other side."""

    def __init__(
        self,
        accept: Callable[[pb.Greeting], asyncio.Protocol],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._accept = accept
        self._words = MessageReader(MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        self._timer = loop.call_later(HANDSHAKE_S, self._give_up)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            message = _first(self._words, data)
            if message is None:
                return
            protocol = self._accept(_parsed(pb.Greeting, message))
        except HandshakeError as error:
            self._reject(str(error))
            return
        self._timer.cancel()
        self._transport.write(_framed(pb.Welcome()))
        _hand_over(self._transport, protocol, self._words.take_rest())

    def connection_lost(self, _: Exception | None) -> None:
        self._timer.cancel()

    def _reject(self, text: str) -> None:
        assert self._transport is not None
        self._timer.cancel()
        self._transport.write(_framed(pb.Welcome(rejection=text)))
        self._transport.close()

    def _give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class HandshakeClient(asyncio.Protocol):
    """The side that connects. `done` ends when the protocol of `make` goes on, or with
    `HandshakeError`, which `make` may raise."""

    def __init__(
        self,
        greeting: pb.Greeting,
        make: Callable[[], asyncio.Protocol],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.done.add_done_callback(_retrieve)  # nobody may wait for it any more
        self._greeting = greeting
        self._make = make
        self._words = MessageReader(MAX_BYTES)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(_framed(self._greeting))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            message = _first(self._words, data)
            if message is None:
                return
            welcome = _parsed(pb.Welcome, message)
        except HandshakeError as error:
            self._fail(str(error))
            return
        if welcome.rejection:
            self._fail(welcome.rejection)
        elif not self.done.done():
            try:
                protocol = self._make()
            except HandshakeError as error:
                self._fail(str(error))
                return
            _hand_over(self._transport, protocol, self._words.take_rest())
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the connection ended: {error}" if error else "the connection ended")

    def _fail(self, text: str) -> None:
        if not self.done.done():
            self.done.set_exception(HandshakeError(text))
        if self._transport is not None:
            self._transport.abort()


def _retrieve(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()


def _first(words: MessageReader, data: bytes) -> bytes | None:
    """The first message once all of it is there; raises `HandshakeError` for one too long."""
    words.feed(data)
    try:
        return words.take()
    except TooLongError:
        raise HandshakeError(NOT_OURS) from None


def _parsed(kind: type[WordsT], message: bytes) -> WordsT:
    try:
        return kind.FromString(message)
    except DecodeError:
        raise HandshakeError(NOT_OURS) from None


def _framed(message: pb.Greeting | pb.Welcome) -> bytes:
    return with_length(message.SerializeToString())


def _hand_over(transport: asyncio.Transport, protocol: asyncio.Protocol, rest: bytes) -> None:
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if rest:
        protocol.data_received(rest)
