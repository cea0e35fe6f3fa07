"""Claims about extproc/app/grpc_port.py by KEDA's port, through a whole picker."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import grpc
import httpx
import pytest

from extproc.app import grpc_port, keda_port
from extproc.app.service import Service
from extproc.pb import externalscaler_pb2 as pb
from extproc.pb.externalscaler_pb2_grpc import ExternalScalerStub
from extproc.settings import Settings
from tests.fakes.authority import Authority
from tests.fakes.picker import until

ANYWHERE = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
SCALED = {"models": {"qwen": {"min_servers": 2}}}
QWEN = pb.ScaledObjectRef(scalerMetadata={"model": "qwen"})


def settings(**keda: str) -> Settings:
    return Settings.model_validate({"listen": ANYWHERE, "scale": SCALED, "keda": keda})


async def test_it_is_closed_unless_it_is_wanted() -> None:
    service = Service(settings())
    await service.start()
    assert service.keda_port == 0
    await service.stop()


async def test_it_serves_without_a_token() -> None:
    service = Service(settings(listen="127.0.0.1:0"))
    await service.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.keda_port}") as channel:
        assert (await ExternalScalerStub(channel).IsActive(QWEN)).result
    await service.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", service.keda_port))


def until_ended(connection: socket.socket) -> None:
    """Raises `TimeoutError` where the other side does not end it."""
    with suppress(ConnectionResetError):
        while connection.recv(4_096):
            pass


async def test_half_open_connections_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects and says nothing takes a bounded number of descriptors, for a bounded
    time."""
    monkeypatch.setattr(grpc_port, "connections", lambda _: 4)
    monkeypatch.setattr(grpc_port, "HEADERS_S", 1.0)
    service = Service(settings(listen="127.0.0.1:0"))
    await service.start()
    place = ("127.0.0.1", service.keda_port)
    held = [socket.create_connection(place) for _ in range(12)]
    try:
        for each in held:
            each.settimeout(60)
            await asyncio.to_thread(until_ended, each)
    finally:
        for each in held:
            each.close()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.keda_port}") as channel:
        stub = ExternalScalerStub(channel)
        assert (await stub.IsActive(QWEN, wait_for_ready=True)).result
    await service.stop()


async def test_with_a_ca_it_takes_only_clients_with_a_certificate(tmp_path: Path) -> None:
    """KEDA's `caCert`, `tlsClientCert` and `tlsClientKey`."""
    authority = Authority(tmp_path)
    own, client = authority.issue("server"), authority.issue("keda")
    files = {"cert_file": own.cert, "key_file": own.key, "client_ca_file": authority.ca}
    service = Service(
        settings(listen="127.0.0.1:0", **{name: str(path) for name, path in files.items()})
    )
    await service.start()
    ca = authority.ca.read_bytes()
    known = grpc.ssl_channel_credentials(ca, client.key.read_bytes(), client.cert.read_bytes())
    place = f"127.0.0.1:{service.keda_port}"
    async with grpc.aio.secure_channel(place, known) as channel:
        assert (await ExternalScalerStub(channel).IsActive(QWEN)).result
    async with grpc.aio.secure_channel(place, grpc.ssl_channel_credentials(ca)) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await ExternalScalerStub(channel).IsActive(QWEN)
    await service.stop()


async def test_requests_do_not_wait_for_a_port_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a problem until it is free: in the log once, and on the page about readiness."""
    monkeypatch.setattr(keda_port, "RETRY_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        service = Service(settings(listen=f"127.0.0.1:{port}"))
        await service.start()
        async with httpx.AsyncClient(trust_env=False) as client:
            ready = await client.get(f"http://127.0.0.1:{service.http_port}/readyz")
        assert "problem: cannot listen on" in ready.text and "keda.listen" in ready.text
        assert service.keda_port == 0
    await until(lambda: service.keda_port == port)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert (await ExternalScalerStub(channel).IsActive(QWEN)).result
    await service.stop()
    assert caplog.text.count("keda.listen") == 1


async def test_a_port_that_stays_taken_is_no_obstacle_to_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        service = Service(settings(listen=f"127.0.0.1:{other.getsockname()[1]}"))
        await service.start()
        await service.stop()
