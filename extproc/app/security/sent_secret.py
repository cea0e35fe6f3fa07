"""A key or a token that this process sends to others, as its file holds it now."""

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from extproc.app.security.secret_reloader import INTERVAL_S, SecretReloader
from extproc.security.reading import Reads
from extproc.security.secret_file import (
    SecretFileError,
    authorization_of,
    is_header_value,
    read_secret,
)

log = logging.getLogger("coxswain.settings")


def header_of(secret: str) -> tuple[tuple[str, str], ...]:
    """The header that carries a key or token; nothing without one."""
    return (("authorization", authorization_of(secret)),) if secret else ()


def read_sent(option: str, file: Path) -> str:
    """The key or token in a file, which people know by an option. Blocks on the disk; raises
    `SecretFileError`."""
    try:
        found = read_secret(file)
    except SecretFileError as error:
        raise SecretFileError(f"{option}: {error}") from None
    if not is_header_value(found):
        raise SecretFileError(f"{option}: {file}: the file contains no key or token")
    return found


class SentSecret:
    """`read` takes it from `file`; without one it is `text`, which is empty for none."""

    def __init__(self, option: str, file: Path | None, text: str = "") -> None:
        """`option` is what people know the file by."""
        self.option = option
        self.file = None if file is None else file.expanduser()
        self._value = text

    @property
    def authorization(self) -> tuple[tuple[str, str], ...]:
        """The header that carries it; nothing without a secret."""
        return header_of(self._value)

    def read(self) -> bool:
        """Take what the file holds; False if it is what is known. Blocks on the disk; raises
        `SecretFileError`, and then the one before stays."""
        if self.file is None:
            return False
        found = read_sent(self.option, self.file)
        before, self._value = self._value, found
        return found != before


def following(
    secrets: Collection[SentSecret],
    on_change: Callable[[], None] = lambda: None,
    interval_s: float = INTERVAL_S,
) -> SecretReloader:
    """Reads their files again when they change, and then calls `on_change`."""
    reads = Reads()
    files = {secret.file for secret in secrets if secret.file is not None}

    async def renew() -> None:
        for secret in secrets:
            try:
                is_new = await reads(secret.read)
            except SecretFileError as error:
                log.error("%s; the one before is sent", error)
                continue
            if is_new:
                log.info("%s has changed: what it holds now is sent", secret.option)
                on_change()

    return SecretReloader(lambda: files, renew, interval_s, is_due=True)
