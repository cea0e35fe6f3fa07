"""Claims about extproc/processes/cluster_access.py: members know each other, and nobody else."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from extproc.processes import cluster_access
from extproc.processes.cluster.kubernetes import KubernetesEngine
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


def in_kubernetes(folder: Path, **cluster: Any) -> Settings:
    values = {"valkey": "", "kubernetes": True, "advertise": "127.0.0.1:9004", **cluster}
    return settings(kubernetes_folder=str(folder), **values)


async def test_a_pod_needs_nothing_but_its_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    (tmp_path / "namespace").write_text("serving\n")
    (tmp_path / "ca.crt").write_bytes(Authority(tmp_path).ca.read_bytes())
    cluster_access.check_cluster(in_kubernetes(tmp_path))
    engine = cluster_access.make_engine(in_kubernetes(tmp_path).cluster)
    assert isinstance(engine, KubernetesEngine)
    assert engine._lease == "/apis/coordination.k8s.io/v1/namespaces/serving/leases/c"
    await engine.aclose()


def test_what_a_service_account_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingsError, match="no pod of Kubernetes"):
        cluster_access.check_cluster(in_kubernetes(tmp_path))
    at = {"kubernetes_api": "https://10.96.0.1:443"}
    with pytest.raises(SettingsError, match=r"kubernetes_namespace: .*cannot be read"):
        cluster_access.check_cluster(in_kubernetes(tmp_path, **at))
    named = {**at, "kubernetes_namespace": "serving"}
    cluster_access.check_cluster(in_kubernetes(tmp_path, **named))
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(SettingsError, match=r"ca\.crt: it holds no CA"):
        cluster_access.make_engine(in_kubernetes(tmp_path, **named).cluster)
