"""Loads tokens and certificates, and checks for unprotected ports."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from extproc.core.address import is_loopback
from extproc.security.tokens import Token, TokenError
from extproc.settings import AdminSettings, AgentsSettings, Problem, Settings, SettingsError
from extproc.settings.security_section import PortTlsSettings
from extproc.transport.certificates import CertificateError, CertificateFiles, Certificates

ADMIN_TOKEN: Final = "COXSWAIN_ADMIN_TOKEN"  # noqa: S105  # the name of a variable
AGENTS_TOKEN: Final = "COXSWAIN_AGENTS_TOKEN"  # noqa: S105  # the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What the ports for operators, agents and KEDA need of the files that the settings name.
    Certificates follow their files; the credentials are None without TLS."""

    operators_token: Token | None
    agents_token: Token | None
    pages_token: Token | None
    admin_credentials: grpc.ServerCredentials | None
    keda_credentials: grpc.ServerCredentials | None


def read_secrets(settings: Settings) -> Secrets:
    """Read them all, and check that no port is unprotected. Raises `SettingsError`; blocks on the
    disk."""
    found = Secrets(
        operators_token=operators_token(settings),
        agents_token=agents_token(settings),
        pages_token=pages_token(settings),
        admin_credentials=admin_credentials(settings),
        keda_credentials=keda_credentials(settings),
    )
    check_exposure(settings)
    return found


def check_exposure(settings: Settings) -> None:
    """Raise `SettingsError` if a port would be unprotected without `--insecure`."""
    listen = settings.listen
    if listen.insecure:
        return
    problems = []
    if not is_loopback(listen.grpc) and settings.grpc_tls.client_ca_file is None:
        problems.append(
            _problem(
                "listen.grpc",
                f"{listen.grpc} is unprotected, and anyone who can reach it can control the "
                "traffic: set grpc_tls.client_ca_file (mutual TLS), listen on 127.0.0.1, or use "
                "--insecure",
            )
        )
    is_guarded = (
        settings.admin_tls.client_ca_file is not None
        or settings.admin.token_file is not None
        or bool(_secret(settings.admin, ADMIN_TOKEN))
    )
    if not is_loopback(listen.admin) and not is_guarded:
        problems.append(
            _problem(
                "listen.admin",
                f"{listen.admin} is unprotected: set admin.token_file or {ADMIN_TOKEN}, or "
                "admin_tls.client_ca_file (mutual TLS), listen on 127.0.0.1, or use --insecure",
            )
        )
    if problems:
        raise SettingsError(problems)


def operators_token(settings: Settings) -> Token | None:
    """The operators' token, None without one; raises `SettingsError`. Blocks on the disk."""
    return _token(settings.admin, "admin", ADMIN_TOKEN)


def pages_token(settings: Settings) -> Token | None:
    """The token for actions of the dashboard. None where there are none: without a token, and where
    the admin port asks for a client certificate. Raises `SettingsError`; blocks on the disk.
    """
    if settings.admin_tls.client_ca_file is not None:
        return None
    return operators_token(settings)


def agents_token(settings: Settings) -> Token | None:
    """The agents' token, None for the operators'; raises `SettingsError`. Blocks on the disk."""
    return _token(settings.agents, "agents", AGENTS_TOKEN)


def _token(section: AdminSettings | AgentsSettings, name: str, variable: str) -> Token | None:
    if section.token_file is not None:
        try:
            return Token.from_file(Path(section.token_file).expanduser())
        except TokenError as error:
            raise SettingsError([_problem(f"{name}.token_file", str(error))]) from None
    secret = _secret(section, variable)
    if not secret and section.token_env is None:
        return None
    try:
        return Token(secret)
    except TokenError as error:
        key = "" if section.token_env is None else f"{name}.token_env"
        text = f"{section.token_env or variable}: {error}"
        raise SettingsError([_problem(key, text)]) from None


def _secret(section: AdminSettings | AgentsSettings, variable: str) -> str:
    """The token in the environment, empty without one."""
    return os.environ.get(section.token_env or variable, "").strip()


def data_plane_certificates(settings: Settings) -> Certificates | None:
    """The data plane's certificates, None without TLS; raises `SettingsError`."""
    return _certificates(settings.grpc_tls, "grpc_tls")


def admin_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """The admin port's certificates, None without TLS; raises `SettingsError`."""
    certificates = _certificates(settings.admin_tls, "admin_tls")
    return None if certificates is None else certificates.credentials()


def keda_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """The certificates of KEDA's port, None without TLS; raises `SettingsError`."""
    certificates = _certificates(settings.keda, "keda")
    return None if certificates is None else certificates.credentials()


def _certificates(section: PortTlsSettings, name: str) -> Certificates | None:
    if section.cert_file is None or section.key_file is None:
        return None
    client_ca = section.client_ca_file
    files = CertificateFiles(
        cert=Path(section.cert_file).expanduser(),
        key=Path(section.key_file).expanduser(),
        client_ca=Path(client_ca).expanduser() if client_ca is not None else None,
    )
    try:
        return Certificates(files)
    except CertificateError as error:
        raise SettingsError([_problem(name, str(error))]) from None


def _problem(key: str, message: str) -> Problem:
    return Problem(where="", key=key, message=message)
