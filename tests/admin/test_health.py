"""Health and reflection, of extproc/transport/health.py and extproc/admin, by their protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from extproc.admin.reflection import ALPHA, V1
from extproc.transport.health import LIVENESS, READINESS
from tests.fakes.picker import FakePicker, until

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


Check = grpc.aio.UnaryUnaryMultiCallable[
    health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
]


@pytest.fixture(params=["admin", "data plane"])
def channel(picker: FakePicker, request: pytest.FixtureRequest) -> grpc.aio.Channel:
    return picker.channel if request.param == "admin" else picker.data_plane


def checker(channel: grpc.aio.Channel) -> Check:
    return channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )


async def test_names_that_people_ask_for(picker: FakePicker, channel: grpc.aio.Channel) -> None:
    """Ready and not ready are told under every name; alive it is in both cases."""
    check = checker(channel)
    for is_ready in (True, False):
        picker.health.set_ready(is_ready)
        for name in (*READINESS, LIVENESS):
            answer = await check(health_pb2.HealthCheckRequest(service=name))
            wanted = SERVING if is_ready or name == LIVENESS else NOT_SERVING
            assert answer.status == wanted, name
    assert "envoy.service.ext_proc.v3.ExternalProcessor" in READINESS


def test_the_names_are_documented() -> None:
    """docs/admin.md has a row for each; the empty one in words."""
    page = (Path(__file__).resolve().parents[2] / "docs/admin.md").read_text(encoding="utf-8")
    section = page.partition("## Health\n")[2].partition("\n## ")[0]
    assert all(f"`{name}`" in section for name in (*READINESS, LIVENESS) if name)
    assert "the empty name" in section


async def test_unknown_name(channel: grpc.aio.Channel) -> None:
    """As the health protocol wants it."""
    check = checker(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(health_pb2.HealthCheckRequest(service="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_each_change_is_reported(picker: FakePicker, channel: grpc.aio.Channel) -> None:
    """To those who watch, once, until they leave; a name that nobody has may come later."""
    watch = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    picker.health.set_ready(False)
    calls: dict[str, Any] = {
        name: watch(health_pb2.HealthCheckRequest(service=name)) for name in ("", "nobody")
    }
    assert (await calls["nobody"].read()).status == UNKNOWN
    assert (await calls[""].read()).status == NOT_SERVING
    picker.health.set_ready(False)
    picker.health.set_ready(True)
    assert (await calls[""].read()).status == SERVING
    picker.health.set_ready(False)
    assert (await calls[""].read()).status == NOT_SERVING
    for call in calls.values():
        call.cancel()
    await until(lambda: not picker.health.watches)


@pytest.mark.parametrize("service", [V1, ALPHA])
async def test_reflection_as_grpcurl_asks(picker: FakePicker, service: str) -> None:
    """`list`, the files of a service and of a method, and the files they need."""
    call = picker.channel.stream_stream(
        f"/{service}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()

    async def ask(**question: Any) -> reflection_pb2.ServerReflectionResponse:
        await call.write(reflection_pb2.ServerReflectionRequest(**question))
        answer = await call.read()
        assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
        return answer

    services = (await ask(list_services="")).list_services_response.service
    assert {"coxswain.v1.Admin", "grpc.health.v1.Health"} <= {each.name for each in services}
    answer = await ask(file_containing_symbol="coxswain.v1.Admin")
    file = FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
    assert "WatchEndpoints" in [method.name for method in file.service[0].method]
    for dependency in file.dependency:
        answer = await ask(file_by_filename=dependency)
        assert answer.file_descriptor_response.file_descriptor_proto
    answer = await ask(file_containing_symbol="coxswain.v1.Admin.Drain")
    assert answer.file_descriptor_response.file_descriptor_proto[0] == file.SerializeToString()
    for unknown in ("no.such.Thing", "coxswain.v1.Admin.Sink", "", "."):
        answer = await ask(file_containing_symbol=unknown)
        assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    await call.done_writing()
