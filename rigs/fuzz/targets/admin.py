"""Operators' calls: an answer, or a status with a text that says what to do."""

import asyncio
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from extproc.admin import AdminService
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.stream.dry_run import dry_run
from extproc.stream.exchange import ExchangeOptions
from rigs.fuzz.reader import Reader
from tests.fakes.admin_dependencies import admin_dependencies
from tests.fakes.picker import FakeAdded, FakeSettings
from tests.fakes.small_fleet import SmallFleet

CALLS = tuple(
    method
    for method in pb.DESCRIPTOR.services_by_name["Admin"].methods
    if not method.server_streaming
)
MOST_CALLS = 8


class Aborted(Exception):  # noqa: N818  # it is an answer
    """The call ended with a status."""


class Context:
    """Of a call that nobody made."""

    async def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        assert isinstance(code, grpc.StatusCode) and code is not grpc.StatusCode.OK
        text.encode()
        raise Aborted(text)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:9"


class Nowhere(asyncio.SelectorEventLoop):
    """An event loop that asks no name server."""

    async def getaddrinfo(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError("there is no name server here")


LOOP = Nowhere()


async def _call(reader: Reader) -> None:
    fleet = SmallFleet(2, 1)
    service = AdminService(
        admin_dependencies(
            fleet.dispatcher,
            lambda: fleet.now,
            settings=FakeSettings(),
            added=FakeAdded(fleet.dispatcher),
            explain=lambda inquiry: dry_run(
                fleet.dispatcher, ExchangeOptions(), inquiry, fleet.now
            ),
        )
    )
    for _ in range(MOST_CALLS):
        if not reader:
            return
        method = reader.choice(CALLS)
        try:
            question = GetMessageClass(method.input_type).FromString(reader.some())
        except DecodeError:
            question = None
        try:
            answer = await getattr(service, method.name)(question, Context())
        except Aborted as refused:
            assert str(refused)
        else:
            assert isinstance(answer, GetMessageClass(method.output_type))
            answer.SerializeToString()


def check(data: bytes) -> None:
    LOOP.run_until_complete(_call(Reader(data)))
