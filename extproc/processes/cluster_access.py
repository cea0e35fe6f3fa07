"""How members of a cluster know each other, and reach their engine: tokens, certificates, keys.

What is read from files is read again for each connection, so a renewed file needs no restart.
"""

import os
import ssl
from pathlib import Path
from typing import Final

from extproc.core.address import is_loopback
from extproc.kubernetes.service_account import (
    ServiceAccount,
    ServiceAccountError,
    find_service_account,
)
from extproc.processes.cluster.engine import Engine
from extproc.security.secret_file import SecretFileError, read_secret
from extproc.security.tokens import Token, TokenError
from extproc.settings import Problem, Settings, SettingsError
from extproc.settings.cluster_section import ClusterSettings
from extproc.transport.certificates import CertificateError, CertificateFiles, load_into

TOKEN: Final = "COXSWAIN_CLUSTER_TOKEN"  # noqa: S105  # the name of a variable
PASSWORD: Final = "COXSWAIN_VALKEY_PASSWORD"  # noqa: S105  # the same
MISSING: Final = "a cluster needs the extra: pip install 'coxswain-llm[cluster]'"


def cluster_problems(settings: Settings) -> tuple[Problem, ...]:
    """Each reason for which a member of a cluster would not start. Blocks on the disk."""
    try:
        check_cluster(settings)
    except SettingsError as error:
        return error.problems
    return ()


def check_cluster(settings: Settings) -> None:
    """Raise `SettingsError` with what forbids a start as a member. Blocks on the disk."""
    cluster = settings.cluster
    if not cluster.name:
        return
    member_token(cluster)
    _password(cluster)
    server_context(cluster)
    client_context(cluster)
    if cluster.kubernetes:
        _service_account(cluster)
    else:
        try:
            import redis  # noqa: F401, PLC0415  # whether it is there
        except ImportError:
            raise _error("cluster.name", MISSING) from None
    is_guarded = cluster.cert_file is not None or member_token(cluster)
    address = cluster.listen or cluster.advertise or ""
    if not (settings.listen.insecure or is_loopback(address) or is_guarded):
        raise _error(
            "cluster.advertise",
            f"{address} is unprotected, and anyone who can reach it can control the traffic: set "
            f"cluster.cert_file, key_file and ca_file (mutual TLS), or {TOKEN}, or use --insecure",
        )


def make_engine(cluster: ClusterSettings) -> Engine:
    """The engine of the settings, not connected yet. Raises `SettingsError`.

    Only the engine in use is imported: fronts need none, and start in half the time.
    """
    if cluster.kubernetes:
        from extproc.processes.cluster.kubernetes import KubernetesEngine  # noqa: PLC0415  # only the engine in use

        account = _service_account(cluster)
        return KubernetesEngine(
            cluster.name, account.url, account.namespace, account.folder, cluster.lease_s
        )
    from extproc.processes.cluster.valkey import ValkeyEngine  # noqa: PLC0415  # only the engine in use

    valkey_ca = _path(cluster.valkey_ca_file)
    return ValkeyEngine(
        cluster.name,
        cluster.valkey,
        cluster.lease_s,
        master=cluster.sentinel,
        password=_password(cluster),
        ca_file=None if valkey_ca is None else str(valkey_ca),
    )


def _service_account(cluster: ClusterSettings) -> ServiceAccount:
    try:
        return find_service_account(
            cluster.kubernetes_api, cluster.kubernetes_namespace, cluster.kubernetes_folder
        )
    except ServiceAccountError as error:
        raise _error(f"cluster.{error.key}", str(error)) from None


def member_token(cluster: ClusterSettings) -> str:
    """The token that members show each other; empty without one. Raises `SettingsError`."""
    text = _secret("cluster.token_file", cluster.token_file, cluster.token_env or TOKEN)
    if text or cluster.token_env is not None or cluster.token_file is not None:
        try:
            Token(text)
        except TokenError as error:
            source = cluster.token_file or cluster.token_env or TOKEN
            raise _error("cluster.token_file", f"{source}: {error}") from None
    return text


def is_token(cluster: ClusterSettings, shown: str) -> bool:
    """Whether a member may connect with this token. Raises `SettingsError`."""
    wanted = member_token(cluster)
    return not wanted or Token(wanted).matches(shown)


def server_context(cluster: ClusterSettings) -> ssl.SSLContext | None:
    """For connections of other members; None without TLS. Raises `SettingsError`."""
    return _context(cluster, ssl.PROTOCOL_TLS_SERVER)


def client_context(cluster: ClusterSettings) -> ssl.SSLContext | None:
    """For connections to other members; None without TLS. Raises `SettingsError`."""
    return _context(cluster, ssl.PROTOCOL_TLS_CLIENT)


def _context(cluster: ClusterSettings, protocol: ssl._SSLMethod) -> ssl.SSLContext | None:
    cert, key, ca = map(_path, (cluster.cert_file, cluster.key_file, cluster.ca_file))
    if cert is None or key is None or ca is None:
        return None
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        load_into(context, CertificateFiles(cert=cert, key=key, client_ca=ca))
    except CertificateError as error:
        raise _error("cluster.cert_file", str(error)) from None
    return context


def _password(cluster: ClusterSettings) -> str | None:
    key = "cluster.valkey_password_file"
    variable = cluster.valkey_password_env or PASSWORD
    return _secret(key, cluster.valkey_password_file, variable) or None


def _secret(key: str, file: str | None, variable: str) -> str:
    if file is None:
        return os.environ.get(variable, "").strip()
    try:
        return read_secret(Path(file))
    except SecretFileError as error:
        raise _error(key, str(error)) from None


def _path(file: str | None) -> Path | None:
    return None if file is None else Path(file).expanduser()


def _error(key: str, message: str) -> SettingsError:
    return SettingsError([Problem(where="", key=key, message=message)])
