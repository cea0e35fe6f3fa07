"""Reads the CA files of servers with TLS.

Everything here blocks on the disk.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from extproc.security.trust import Trust, are_certificates, certificates_in
from extproc.settings import Access, Problem, SettingsError, certified_ip, profile_of

MAX_CA_BYTES: Final = 4 * 1024 * 1024
"""The system's CA bundle has a quarter of a megabyte."""


def trust_of(access: Access, ca_pem: bytes) -> Trust | None:
    """Whom to take for this server, by the content of its `ca_file`; None without TLS."""
    if not access.is_tls:
        return None
    pem = certificates_in(ca_pem) if access.ca_file is not None else None
    return Trust(profile=profile_of(access), ca_pem=pem, ip=certified_ip(access))


def read_ca_bundles(accesses: Iterable[Access]) -> dict[str, bytes]:
    """What each of their files holds, each read once; raises `SettingsError` with each mistake."""
    found: dict[str, bytes] = {}
    problems = []
    for access in accesses:
        if access.ca_file is None or path_of(access.ca_file) in found:
            continue
        file = path_of(access.ca_file)
        try:
            content = found[file] = _content(file)
            if not are_certificates(certificates_in(content)):
                raise OSError(errno.EINVAL, "it contains no certificates")
        except OSError as error:
            reason = error.strerror or "it cannot be read"
            message = f"{file}: {reason.lower()}"
            problems.append(Problem(where=access.address, key="ca_file", message=message))
            found[file] = b""
    if problems:
        raise SettingsError(problems)
    return found


def path_of(file: str) -> str:
    """A file's path, with the home folder put in."""
    return str(Path(file).expanduser())


def _content(file: str) -> bytes:
    """All of a file of certificates; raises `OSError`, and never waits: an operator may name it."""
    found = os.stat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_CA_BYTES:
        raise OSError(errno.EINVAL, "not a file of certificates")
    with open(file, "rb") as stream:
        return stream.read(MAX_CA_BYTES)
