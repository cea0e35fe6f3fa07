"""Tokens and certificates as the settings name them, and the refusal to be open by mistake."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from extproc.admin.certificates import CertificateError, CertificateFiles, Certificates
from extproc.admin.guard import Guard
from extproc.admin.tokens import Token, TokenError
from extproc.app.ports import ListenError
from extproc.settings.values import split_host_port

if TYPE_CHECKING:
    import grpc

    from extproc.settings import AdminSettings, AgentsSettings, Settings
    from extproc.settings.safety_section import AdminTlsSettings, GrpcTlsSettings


ADMIN_TOKEN: Final = "COXSWAIN_ADMIN_TOKEN"  # noqa: S105  # the name of a variable
AGENTS_TOKEN: Final = "COXSWAIN_AGENTS_TOKEN"  # noqa: S105  # the same


def check_exposure(settings: Settings, guard: Guard) -> None:
    """Raise `ListenError` where a port would be open to everybody without that being said."""
    listen = settings.listen
    if listen.insecure:
        return
    if not is_loopback(listen.grpc) and settings.grpc_tls.client_ca_file is None:
        raise ListenError(
            f"listen.grpc {listen.grpc} is open to others, and who reaches it steers traffic: "
            "set grpc_tls.client_ca_file (mutual TLS), listen on 127.0.0.1, or say --insecure"
        )
    is_guarded = guard.guards_operators or settings.admin_tls.client_ca_file is not None
    if not is_loopback(listen.admin) and not is_guarded:
        raise ListenError(
            f"listen.admin {listen.admin} is open to others: set admin.token_file or "
            f"{ADMIN_TOKEN}, or admin_tls.client_ca_file (mutual TLS), listen on 127.0.0.1, "
            "or say --insecure"
        )


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address. A name other than localhost may not be."""
    host = split_host_port(address)[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def guard(settings: Settings) -> Guard:
    """Asks callers for the tokens that the settings name; raises `ListenError`."""
    return Guard(
        _token(settings.admin, "admin", ADMIN_TOKEN),
        _token(settings.agents, "agents", AGENTS_TOKEN),
    )


def _token(section: AdminSettings | AgentsSettings, name: str, variable: str) -> Token | None:
    if section.token_file is not None:
        try:
            return Token.from_file(Path(section.token_file).expanduser())
        except TokenError as error:
            raise ListenError(f"{name}.token_file: {error}") from None
    secret = os.environ.get(section.token_env or variable, "").strip()
    if not secret and section.token_env is None:
        return None
    try:
        return Token(secret)
    except TokenError as error:
        raise ListenError(f"{section.token_env or variable}: {error}") from None


def credentials(section: GrpcTlsSettings | AdminTlsSettings) -> grpc.ServerCredentials | None:
    """The certificates for a port, None for one without TLS; raises `ListenError`."""
    if section.cert_file is None or section.key_file is None:
        return None
    client_ca = section.client_ca_file
    files = CertificateFiles(
        cert=Path(section.cert_file).expanduser(),
        key=Path(section.key_file).expanduser(),
        client_ca=Path(client_ca).expanduser() if client_ca is not None else None,
    )
    try:
        return Certificates(files).credentials()
    except CertificateError as error:
        raise ListenError(str(error)) from None
