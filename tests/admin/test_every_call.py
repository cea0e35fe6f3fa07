"""Every call of the admin service through a real client: with the token, with an expired
certificate, and with whatever a hostile caller might send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor

from extproc.admin.auth.guard import Guard
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.tokens import Token
from extproc.transport.certificates import CertificateFiles, Certificates
from tests.fakes.authority import Authority
from tests.fakes.picker import FakePicker, running_picker

TOKEN = "operators-token-of-this-test"
METHODS = pb.DESCRIPTOR.services_by_name["Admin"].methods
NAMES = [method.name for method in METHODS]
SAYS_WHAT_TO_DO = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""Neither INTERNAL nor UNKNOWN: those are what a crash looks like."""
HOSTILE_TEXTS = (
    "",
    " ",
    "x" * 100_000,
    "10.0.0.99:1",
    "10.0.0.1:99999",
    "[::1",
    "https://",
    "../../etc/passwd",
    "\x00\n\x7f",
    "' OR 1=1 --",
    "\u202e\U0001f480",
    "%s%n{0}",
)
HOSTILE_NUMBERS = (float("nan"), float("inf"), -1.0, 1e308)


def request_of(method: MethodDescriptor) -> Any:
    return getattr(pb, method.input_type.name)()


def hostile(method: MethodDescriptor) -> Iterator[bytes]:
    """Bytes that are no message, and messages with one bad field, and with all of them."""
    yield from (b"\xff" * 8, b"\x0a\x02\xff\xfe", b"\x0a\xff\xff\xff\x7f", b"\x08\x01" * 1000)
    everything = request_of(method)
    for field in method.input_type.fields:
        for value in values_of(field):
            message = request_of(method)
            put(message, field, value)
            put(everything, field, value)
            yield message.SerializeToString()
    yield everything.SerializeToString()


def values_of(field: FieldDescriptor) -> tuple[Any, ...]:
    """What somebody could write there that fits the wire and not the meaning."""
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return (b"", b"\xff" * 70_000, b'{"n":1e999}', b"{" * 5000)
        return HOSTILE_TEXTS
    if kind == FieldDescriptor.CPPTYPE_DOUBLE:
        return HOSTILE_NUMBERS
    if kind == FieldDescriptor.CPPTYPE_UINT32:
        return (2**32 - 1,)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return (99, 2**31 - 1)
    return (True,) if kind == FieldDescriptor.CPPTYPE_BOOL else ()


def put(message: Any, field: FieldDescriptor, value: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if field.is_repeated:
        getattr(message, field.name).extend([value] * 3)
    else:
        setattr(message, field.name, value)


async def status_of(
    channel: grpc.aio.Channel, method: MethodDescriptor, raw: bytes, token: str = ""
) -> grpc.StatusCode:
    """How the call ends; OK once a stream says anything."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    path = f"/coxswain.v1.Admin/{method.name}"
    answer = getattr(pb, method.output_type.name).FromString
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    call: Any = kind(path, request_serializer=lambda sent: sent, response_deserializer=answer)(
        raw, metadata=metadata, timeout=10
    )
    try:
        await (call.read() if method.server_streaming else call)
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        call.cancel()
    return grpc.StatusCode.OK


async def fill(picker: FakePicker) -> None:
    """Something that each call could be about."""
    picker.add_ready("10.0.0.1:8080", slots=2, name="one")
    await picker.ask("r1")


@pytest.mark.parametrize("name", NAMES)
async def test_the_token_opens_it(name: str) -> None:
    """Without it the call is rejected, and with it the call is what it is for anybody."""
    method = METHODS[NAMES.index(name)]
    guard = Guard(Token(TOKEN), None)
    async with running_picker(interceptors=(guard,)) as picker:
        picker.add_ready("10.0.0.1:8080", name="one")
        raw = request_of(method).SerializeToString()
        rejected = await status_of(picker.channel, method, raw)
        assert rejected is grpc.StatusCode.UNAUTHENTICATED
        wrong = await status_of(picker.channel, method, raw, TOKEN[:-1])
        assert wrong is grpc.StatusCode.UNAUTHENTICATED
        assert await status_of(picker.channel, method, raw, TOKEN) in SAYS_WHAT_TO_DO


async def test_an_expired_certificate_opens_none_of_them(tmp_path: Path) -> None:
    """The caller's own one that is in time opens all; and an expired server is not believed."""
    authority = Authority(tmp_path)
    server = authority.issue("server")
    files = CertificateFiles(cert=server.cert, key=server.key, client_ca=authority.ca)
    good, expired = authority.issue("me"), authority.issue("late", is_expired=True)
    async with running_picker(credentials=Certificates(files).credentials()) as picker:
        await fill(picker)
        for shown, is_open in ((good, True), (expired, False)):
            credentials = grpc.ssl_channel_credentials(
                authority.ca.read_bytes(), shown.key.read_bytes(), shown.cert.read_bytes()
            )
            options = [("grpc.use_local_subchannel_pool", 1)]
            target = f"127.0.0.1:{picker.tls_port}"
            async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
                for method in METHODS:
                    raw = request_of(method).SerializeToString()
                    code = await status_of(channel, method, raw)
                    wanted = SAYS_WHAT_TO_DO if is_open else {grpc.StatusCode.UNAVAILABLE}
                    assert code in wanted, method.name


@pytest.mark.parametrize("name", NAMES)
async def test_hostile_input_is_rejected_and_the_picker_lives_on(
    name: str, picker: FakePicker, caplog: pytest.LogCaptureFixture
) -> None:
    """Empty and huge texts, unknown endpoints, impossible numbers, bytes of anything else."""
    method = METHODS[NAMES.index(name)]
    await fill(picker)
    for raw in hostile(method):
        code = await status_of(picker.channel, method, raw)
        assert code in SAYS_WHAT_TO_DO, (name, raw[:80])
    # What is left of an earlier test's event loop may be told by asyncio's logger: gRPC has one
    # queue for all loops of a process.
    told = [record for record in caplog.records if record.exc_info and record.name != "asyncio"]
    assert not told
    listed = await picker.admin.ListEndpoints(pb.ListEndpointsRequest())
    assert "10.0.0.1:8080" in {endpoint.address for endpoint in listed.endpoints}
    status = await picker.admin.GetStatus(pb.GetStatusRequest())
    assert status.version == "1.2.3"
