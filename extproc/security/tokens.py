"""Bearer tokens: compared in constant time, read again when their file changes, never shown."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path

from extproc.security.file_signature import read_signature
from extproc.security.secret_file import SecretFileError, is_header_value, read_secret

log = logging.getLogger("coxswain.admin")


class TokenError(ValueError):
    """There is no usable token; `str(error)` names the source, never the token."""


class Token:
    """A token that callers must send."""

    def __init__(self, secret: str, file: Path | None = None) -> None:
        self._secret = _checked(secret, "the token")
        self._file = file
        self._signature = None if file is None else read_signature(file)

    @classmethod
    def from_file(cls, file: Path) -> Token:
        """The token in `file`, blanks around it not counting; raises `TokenError`."""
        return cls(_read(file), file)

    def __repr__(self) -> str:
        return "Token(...)"

    def matches(self, shown: str) -> bool:
        """Whether `shown` is the token. Takes as long for a nearly right one as for any other."""
        self._refresh()
        return hmac.compare_digest(shown.encode(errors="replace"), self._secret)

    def _refresh(self) -> None:
        """Load a changed file; if it is unusable, the previous token stays."""
        if self._file is None or (found := read_signature(self._file)) == self._signature:
            return
        self._signature = found
        try:
            self._secret = _checked(_read(self._file), str(self._file))
        except TokenError as error:
            log.warning("%s; keeping the previous token", error)
        else:
            log.info("loaded the new token from %s", self._file)


def _read(file: Path) -> str:
    try:
        return read_secret(file)
    except SecretFileError as error:
        raise TokenError(str(error)) from None


def _checked(secret: str, source: str) -> bytes:
    if not is_header_value(secret) or " " in secret:
        raise TokenError(
            f"{source} is empty, or contains characters that are not allowed in a header"
        )
    return secret.encode()
