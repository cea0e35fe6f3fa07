"""A port's certificates, which may be renewed on disk while it serves."""

import errno
import logging
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

log = logging.getLogger("coxswain.transport")

MAX_FILE_BYTES: Final = 1024 * 1024


class CertificateError(ValueError):
    """The files are invalid; `str(error)` says which and why, without their content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files. With `client_ca`, callers must present a certificate of one of its CAs."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def mark(self) -> tuple[tuple[int, int, int], ...] | None:
        """Another value when a file is another one; None while one is missing."""
        marks = []
        try:
            for file in (self.cert, self.key, self.client_ca):
                if file is not None:
                    found = file.stat()
                    marks.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            return None
        return tuple(marks)


class Certificates:
    """Reads the files now, and again at the first handshake after they changed.

    New files that do not fit together (a renewal half done) are logged, and the ones from
    before stay in use. Connections that are open go on. Raises `CertificateError`.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._mark = files.mark()
        self._context, self._first = _load(files)

    def credentials(self) -> grpc.ServerCredentials:
        """For a server of grpcio."""
        return grpc.dynamic_ssl_server_credentials(
            self._first,
            self._renewed,  # type: ignore[arg-type]  # None is allowed, and means no change
            require_client_authentication=self._files.client_ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """For the next connection of our own server. Checks the files for changes."""
        self._renewed()
        return self._context

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called at each handshake; None leaves what is in use."""
        mark = self._files.mark()
        if mark is None or mark == self._mark:
            return None
        self._mark = mark
        try:
            self._context, renewed = _load(self._files)
        except CertificateError as error:
            log.warning("%s; keeping the previous certificate", error)
            return None
        log.info("loaded the new certificate from %s", self._files.cert)
        return renewed


def load_into(context: ssl.SSLContext, files: CertificateFiles) -> None:
    """Show the certificate, and check the other side's against `client_ca`, if that is given.
    Raises `CertificateError`."""
    with _in_words(files):
        for file in (files.cert, files.key, files.client_ca):
            if file is not None and not stat.S_ISREG(file.stat().st_mode):
                raise OSError(errno.EINVAL, "not a file", str(file))  # reading a pipe may block
        # An encrypted key would otherwise be asked for on the terminal.
        context.load_cert_chain(files.cert, files.key, password=lambda: b"")
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED


def _load(files: CertificateFiles) -> tuple[ssl.SSLContext, grpc.ServerCertificateConfiguration]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    load_into(context, files)
    with _in_words(files):
        ca_pem = _read(files.client_ca) if files.client_ca is not None else None
        return context, grpc.ssl_server_certificate_configuration(
            [(_read(files.key), _read(files.cert))], root_certificates=ca_pem
        )


@contextmanager
def _in_words(files: CertificateFiles) -> Iterator[None]:
    """Say which files are invalid, and why."""
    try:
        yield
    except ssl.SSLError as error:
        reason = (error.reason or "invalid certificate or key").replace("_", " ").lower()
        names = ", ".join(str(file) for file in (files.cert, files.key, files.client_ca) if file)
        raise CertificateError(f"{names}: {reason}") from None
    except OSError as error:
        name = error.filename or files.cert
        raise CertificateError(f"{name}: {(error.strerror or 'unreadable').lower()}") from None


def _read(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(MAX_FILE_BYTES)
