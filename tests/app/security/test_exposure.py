"""Claims about extproc/app/security/exposure.py: nothing is open by mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from extproc.app.security import exposure
from extproc.app.service import Service
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.settings import Settings, SettingsError
from tests.fakes.authority import Authority

FREE = "127.0.0.1:0"


def checked(**values: Any) -> None:
    settings = Settings(**values)
    exposure.read_secrets(settings)


@pytest.mark.parametrize("port", ["grpc", "admin"])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.5", "picker.example"])
def test_rejects_to_be_open(port: str, host: str) -> None:
    """Beyond loopback with neither token nor mutual TLS, and the text says what to do."""
    with pytest.raises(SettingsError, match=rf"listen\.{port}: .*unprotected.*--insecure"):
        checked(listen={port: f"{host}:9000"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_loopback_is_nobody_elses(host: str) -> None:
    """There nothing is asked for."""
    checked(listen={"grpc": f"{host}:0", "admin": f"{host}:0"})


def test_by_default_only_this_machine_reaches_any_port() -> None:
    """Operators' port 9003 among them."""
    listen = Settings().listen
    assert (listen.grpc, listen.admin, listen.http) == (
        "127.0.0.1:9002",
        "127.0.0.1:9003",
        "127.0.0.1:9090",
    )
    checked()


def test_insecure_must_be_said() -> None:
    """Then it is taken at its word."""
    checked(listen={"grpc": "0.0.0.0:0", "admin": "0.0.0.0:0", "insecure": True})


def test_a_token_opens_the_admin_port_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Envoy shows no token: its port needs mutual TLS. The agents' token does not guard
    operators' calls."""
    monkeypatch.setenv(exposure.ADMIN_TOKEN, "a-token")
    checked(listen={"admin": "0.0.0.0:0"})
    with pytest.raises(SettingsError, match=r"listen\.grpc"):
        checked(listen={"grpc": "0.0.0.0:0"})
    monkeypatch.delenv(exposure.ADMIN_TOKEN)
    monkeypatch.setenv(exposure.AGENTS_TOKEN, "a-token")
    with pytest.raises(SettingsError, match=r"listen\.admin"):
        checked(listen={"admin": "0.0.0.0:0"})
    file = tmp_path / "token"
    file.write_text("a-token", encoding="ascii")
    checked(listen={"admin": "0.0.0.0:0"}, admin={"token_file": str(file)})


def test_mutual_tls_guards_both(tmp_path: Path) -> None:
    """TLS alone does not: it hides what is said, and lets everybody say it."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    tls = {"cert_file": str(pair.cert), "key_file": str(pair.key)}
    mutual = {**tls, "client_ca_file": str(authority.ca)}
    listen = {"grpc": "0.0.0.0:0", "admin": "0.0.0.0:0"}
    checked(listen=listen, grpc_tls=mutual, admin_tls=mutual)
    with pytest.raises(SettingsError):
        checked(listen=listen, grpc_tls=tls, admin_tls=tls)


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    """Named but missing, a token is a mistake, not an open door."""
    with pytest.raises(SettingsError, match="NO_SUCH_TOKEN"):
        checked(admin={"token_env": "NO_SUCH_TOKEN"})
    with pytest.raises(SettingsError, match=r"agents\.token_file.*no-such"):
        checked(agents={"token_file": str(tmp_path / "no-such")})
    settings = Settings.model_validate(
        {"grpc_tls": {"cert_file": "/no/such", "key_file": "/no/such"}}
    )
    with pytest.raises(SettingsError, match="/no/such"):
        exposure.data_plane_certificates(settings)


async def test_a_service_with_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutual TLS and a token on both sides; no secret is in the settings it shows."""
    authority = Authority(tmp_path)
    server, client = authority.issue("server"), authority.issue("client")
    tls = {
        "cert_file": str(server.cert),
        "key_file": str(server.key),
        "client_ca_file": str(authority.ca),
    }
    monkeypatch.setenv(exposure.ADMIN_TOKEN, "sk-token")
    monkeypatch.setenv("MY_LLAMA_KEY", "sk-llama")
    endpoint = {"address": "127.0.0.1:9", "api_key_env": "MY_LLAMA_KEY"}
    service = Service(
        Settings.model_validate(
            {
                "listen": {"grpc": FREE, "admin": FREE, "http": FREE},
                "endpoints": [endpoint],
                "grpc_tls": tls,
                "admin_tls": tls,
                "drain_timeout_s": 0,
            }
        )
    )
    await service.start()
    credentials = grpc.ssl_channel_credentials(
        authority.ca.read_bytes(), client.key.read_bytes(), client.cert.read_bytes()
    )
    try:
        target = f"127.0.0.1:{service.admin_port}"
        async with grpc.aio.secure_channel(target, credentials) as channel:
            admin = AdminStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await admin.GetSettings(pb.GetSettingsRequest())
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            shown = await admin.GetSettings(
                pb.GetSettingsRequest(), metadata=(("authorization", "Bearer sk-token"),)
            )
            assert "MY_LLAMA_KEY" in shown.json and "sk-" not in shown.json
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/x/y", lambda raw: raw)(b"", timeout=30)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        await service.stop()
