"""Claims about extproc/app/security/cluster_access.py: members know each other, and nobody else."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from extproc.app.security import cluster_access
from extproc.settings import Settings, SettingsError
from extproc.settings.cluster_section import ClusterSettings
from tests.fakes.authority import Authority


def settings(**cluster: Any) -> Settings:
    found = {"name": "c", "valkey": "redis://v:1", "advertise": "10.0.0.2:9004", **cluster}
    return Settings(fronts=1, cluster=ClusterSettings(**found))


def test_without_a_cluster_nothing_is_asked_for() -> None:
    cluster_access.check_cluster(Settings())


def test_a_port_beyond_loopback_needs_a_token_or_certificates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SettingsError, match=r"cluster\.advertise: .*unprotected.*--insecure"):
        cluster_access.check_cluster(settings())
    cluster_access.check_cluster(settings(advertise="127.0.0.1:9004"))
    cluster_access.check_cluster(settings(listen="127.0.0.1:9004"))
    monkeypatch.setenv(cluster_access.TOKEN, "a-token")
    cluster_access.check_cluster(settings())


def test_the_token_is_compared_and_may_be_renewed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    cluster = settings(token_file=str(file)).cluster
    assert cluster_access.is_token(cluster, "first")
    assert not cluster_access.is_token(cluster, "")
    file.write_text("second\n")
    assert cluster_access.member_token(cluster) == "second"
    assert not cluster_access.is_token(cluster, "first")


@pytest.mark.parametrize("key", ["token_file", "valkey_password_file"])
def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path, key: str) -> None:
    missing = settings(**{key: str(tmp_path / "none")})
    with pytest.raises(SettingsError, match="cannot be read"):
        cluster_access.check_cluster(missing)


def test_an_empty_token_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "")
    with pytest.raises(SettingsError, match="OTHER"):
        cluster_access.check_cluster(settings(token_env="OTHER"))


def tls(authority: Authority, name: str) -> Settings:
    pair = authority.issue(name)
    return settings(cert_file=str(pair.cert), key_file=str(pair.key), ca_file=str(authority.ca))


async def shake_hands(server: Settings, client: Settings) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1))
        writer.close()

    listening = await asyncio.start_server(
        serve, "127.0.0.1", 0, ssl=cluster_access.server_context(server.cluster)
    )
    try:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=cluster_access.client_context(client.cluster)
        )
        writer.write(b"x")
        if await reader.read(1) != b"x":
            raise ConnectionResetError
        writer.close()
    finally:
        listening.close()


async def test_members_check_each_others_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    a, b = tls(authority, "a"), tls(authority, "b")
    cluster_access.check_cluster(a)
    await shake_hands(a, b)
    (tmp_path / "other").mkdir()
    stranger = tls(Authority(tmp_path / "other", "stranger"), "c")
    for server, client in ((a, stranger), (stranger, a)):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shake_hands(server, client)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("nothing")
    name = str(tmp_path / "a.pem")
    with pytest.raises(SettingsError, match=r"a\.pem"):
        cluster_access.check_cluster(settings(cert_file=name, key_file=name, ca_file=name))
    with pytest.raises(SettingsError, match="no such file"):
        cluster_access.check_cluster(settings(cert_file="/none", key_file=name, ca_file=name))
