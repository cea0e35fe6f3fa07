"""Claims about the start of extproc/app/service.py."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import grpc
import pytest

from extproc.app.ports import ListenError
from extproc.app.service import Service
from extproc.core.address import Address
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.settings import Settings, SettingsError
from tests.fakes.authority import Authority

ANYWHERE = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")


@pytest.mark.parametrize("taken", ["grpc", "admin", "http"])
async def test_a_port_that_is_taken_is_named_and_the_others_are_let_go(taken: str) -> None:
    """So the process can end, or try again, as if it had never been started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        service = Service(Settings.model_validate({"listen": {**ANYWHERE, taken: place}}))
        with pytest.raises(ListenError, match=rf"listen\.{taken}"):
            await service.start()
        for port in {service.admin_port, service.http_port} - {0}:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("port", ["grpc", "admin"])
async def test_a_renewed_certificate_is_served_at_the_next_handshake(
    port: str, tmp_path: Path
) -> None:
    """On Envoy's port as on the operators', with no restart and no reload."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    files = {"cert_file": str(pair.cert), "key_file": str(pair.key)}
    service = Service(Settings.model_validate({"listen": ANYWHERE, f"{port}_tls": files}))
    await service.start()
    place = ("127.0.0.1", service.grpc_port if port == "grpc" else service.admin_port)
    try:
        assert await asyncio.to_thread(ssl.get_server_certificate, place) in pair.cert.read_text()
        before = pair.cert.read_text()
        authority.issue("server")
        assert pair.cert.read_text() != before
        assert await asyncio.to_thread(ssl.get_server_certificate, place) in pair.cert.read_text()
    finally:
        await service.stop()


@pytest.mark.parametrize("broken", ["token", "cert.pem", None])
async def test_a_spare_takes_over_with_a_mistake_in_a_file(
    broken: str | None, tmp_path: Path
) -> None:
    """It keeps what it read of that file before; what changed in others is used. A process that
    never read the file does not start."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    cert, token = tmp_path / "cert.pem", tmp_path / "token"
    cert.write_bytes(pair.cert.read_bytes())
    token.write_text("before")
    settings = Settings.model_validate(
        {
            "listen": ANYWHERE,
            "admin": {"token_file": str(token)},
            "admin_tls": {"cert_file": str(cert), "key_file": str(pair.key)},
        }
    )
    spare = Service(settings)
    spare.prepare()
    token.write_text("after")
    if broken is not None:
        (tmp_path / broken).write_text("")
    await spare.start()
    used = "before" if broken == "token" else "after"
    credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    try:
        async with grpc.aio.secure_channel(f"127.0.0.1:{spare.admin_port}", credentials) as channel:
            await AdminStub(channel).GetStatus(
                pb.GetStatusRequest(), metadata=(("authorization", f"Bearer {used}"),)
            )
    finally:
        await spare.stop()
    if broken is not None:
        with pytest.raises(SettingsError):
            await Service(settings).start()


async def test_a_missing_key_of_the_settings_keeps_back_no_key_of_the_operators(
    tmp_path: Path,
) -> None:
    keys = {name: tmp_path / name for name in ("listed", "added")}
    for key in keys.values():
        key.write_text("old")
    settings = Settings.model_validate(
        {
            "listen": ANYWHERE,
            "endpoints": [{"address": "127.0.0.1:1", "api_key_file": str(keys["listed"])}],
            "admin": {"api_key_folder": str(tmp_path)},
        }
    )
    service = Service(settings)
    await service.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.admin_port}") as channel:
            await AdminStub(channel).AddEndpoint(
                pb.AddEndpointRequest(
                    address="127.0.0.1:2", api_key_file=str(keys["added"]), inject_key=True
                )
            )
        keys["listed"].unlink()
        keys["added"].write_text("new")
        await service.settings.refresh()
        endpoint = service.dispatcher.fleet.get(Address("127.0.0.1", 2))
        assert endpoint is not None and endpoint.spec.authorization == "Bearer new"
    finally:
        await service.stop()
