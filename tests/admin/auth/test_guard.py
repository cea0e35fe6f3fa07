"""Claims about extproc/admin/auth/guard.py, through a real client."""

from __future__ import annotations

import logging

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from extproc.admin.auth.guard import Guard
from extproc.admin.reflection import V1
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.tokens import Token
from tests.fakes.picker import FakePicker, running_picker

OPERATOR, AGENT = "operators-secret", "agents-secret"
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def guard() -> Guard:
    return Guard(Token(OPERATOR), Token(AGENT))


async def status(picker: FakePicker, *headers: tuple[str, str]) -> grpc.StatusCode:
    """How a call with these headers ends."""
    try:
        await picker.admin.GetStatus(pb.GetStatusRequest(), metadata=headers)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def report(picker: FakePicker) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    """A call of the agents' service."""
    return picker.channel.unary_unary(
        "/coxswain.v1.Agents/Report",
        request_serializer=lambda raw: raw,
        response_deserializer=lambda raw: raw,
    )


async def test_only_the_right_token_opens(caplog: pytest.LogCaptureFixture) -> None:
    """The operators' token does; none, a wrong one, a cut one and the agents' one do not."""
    caplog.set_level(logging.DEBUG)
    async with running_picker(interceptors=(guard(),)) as picker:
        assert await status(picker, ("authorization", f"Bearer {OPERATOR}")) is grpc.StatusCode.OK
        assert await status(picker, ("authorization", f"bearer {OPERATOR} ")) is grpc.StatusCode.OK
        for wrong in (
            (),
            (("authorization", f"Bearer {OPERATOR[:-1]}"),),
            (("authorization", f"Bearer {OPERATOR}x"),),
            (("authorization", f"Bearer {AGENT}"),),
            (("authorization", f"Basic {OPERATOR}"),),
            (("authorization", OPERATOR),),
            (("authorization", ""),),
            (("authorization", "Bearer " + "x" * 5000),),
            (("x-authorization", f"Bearer {OPERATOR}"),),
        ):
            assert await status(picker, *wrong) is UNAUTHENTICATED, wrong
    assert OPERATOR not in caplog.text and AGENT not in caplog.text


async def test_every_call_is_guarded() -> None:
    """Unary or streaming, known or unknown: the text says what to send."""
    async with running_picker(interceptors=(guard(),)) as picker:
        for method in pb.DESCRIPTOR.services_by_name["Admin"].methods:
            call = picker.channel.unary_stream(
                f"/coxswain.v1.Admin/{method.name}",
                request_serializer=lambda raw: raw,
                response_deserializer=lambda raw: raw,
            )(b"")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is UNAUTHENTICATED, method.name
            text = caught.value.details() or ""
            assert "authorization: Bearer" in text and OPERATOR not in text
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await report(picker)(b"")
        assert caught.value.code() is UNAUTHENTICATED


async def test_health_is_open_and_reflection_is_the_operators() -> None:
    """Probes carry no token; an agent has no business with the others' services."""
    async with running_picker(interceptors=(guard(),)) as picker:
        picker.health.set_ready(True)
        check = picker.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        assert (await check(health_pb2.HealthCheckRequest())).status == 1
        reflect = picker.channel.stream_stream(
            f"/{V1}/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        for shown in ((), (("authorization", f"Bearer {AGENT}"),)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await reflect(metadata=shown).read()
            assert caught.value.code() is UNAUTHENTICATED
        call = reflect(metadata=(("authorization", f"Bearer {OPERATOR}"),))
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        assert await call.read() is not grpc.aio.EOF
        call.cancel()


async def test_agents_without_a_token_of_their_own() -> None:
    """They show the operators'; and with no token at all everything is open."""
    async with running_picker(interceptors=(Guard(Token(OPERATOR)),)) as picker:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await report(picker)(b"", metadata=(("authorization", f"Bearer {OPERATOR}"),))
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED  # past the guard
    async with running_picker(interceptors=(Guard(),)) as picker:
        assert await status(picker) is grpc.StatusCode.OK
