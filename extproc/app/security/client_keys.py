"""Follows the file with the clients' keys."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from extproc.security.file_signature import Changes, FileSignature, read_signature
from extproc.security.known_keys import UNKNOWN, KnownKey, KnownKeys
from extproc.security.reading import BlockedReadError, Reads
from extproc.settings import Problem, Settings, SettingsError
from extproc.settings.client_keys import (
    KEY,
    NONE,
    parse_client_keys,
    read_keys_file,
    says_none,
)

INTERVAL_S: Final = 0.4
"""A change counts when the file looks the same twice, so it is used within a second."""

log = logging.getLogger("coxswain.settings")


class ClientKeys:
    """`known` has the keys from `open` on, and follows the file from `start` to `aclose`. Without
    `clients.keys_file` it is None.

    A file that cannot be used leaves the keys as they are, is logged, and is in `problems` until
    it can be used.
    """

    def __init__(
        self,
        settings: Settings,
        interval_s: float = INTERVAL_S,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        file = settings.clients.keys_file
        self._file = None if file is None else Path(file).expanduser()
        self.known = None if file is None else KnownKeys()
        self._interval_s = interval_s
        self._unix_clock = unix_clock
        self._task: asyncio.Task[None] | None = None
        self._problems: tuple[str, ...] = ()
        self._reads = Reads()
        self.on_renewed: Callable[[], None] | None = None
        """Called after each change."""

    def open(
        self,
        inherited: Mapping[str, str] | None = None,
        inherited_ends: Mapping[str, float] | None = None,
    ) -> None:
        """Read the file for the first time. Where it cannot be used, the keys are those that
        another process knew, `inherited`, which expire at `inherited_ends`; without these, raises
        `SettingsError`. Blocks on the disk."""
        try:
            self._load()
        except SettingsError as error:
            if inherited is None or self.known is None:
                raise
            self.known.replace(inherited, inherited_ends)
            self.known.expire(self._unix_clock())
            self._note(*map(str, error.problems))

    def names(self) -> Mapping[str, str] | None:
        """The clients' names by the digests of their keys, None without `clients.keys_file`.
        Another object after each change."""
        return None if self.known is None else self.known.names()

    def ends(self) -> Mapping[str, float]:
        """The Unix times at which keys expire, by digest, of those that do."""
        return {} if self.known is None else self.known.ends()

    def _load(self) -> None:
        if self._file is None or self.known is None:
            return
        text = read_keys_file(self._file)
        entries = parse_client_keys(text, self._file)
        names = {entry.digest: entry.name for entry in entries}
        ends = {entry.digest: entry.ends_at for entry in entries if entry.ends_at is not None}
        if not names and self.known.names() and not says_none(text):
            message = f"it holds no key any more; if that is meant, write the line `{NONE}`"
            raise SettingsError([Problem(where=str(self._file), key=KEY, message=message)])
        if not names:
            log.warning("%s contains no key: every client is rejected", self._file)
        self.known.replace(names, ends)
        self.known.expire(self._unix_clock())

    def key_of(self, authorization: str, api_key: str) -> KnownKey | None:
        """The client's key in these headers, `UNKNOWN` where keys are not checked; None if it may
        not ask for anything."""
        if self.known is None:
            return UNKNOWN
        key = self.known.find(authorization, api_key)
        return key if key.client else None

    def who_asks(self, authorization: str, api_key: str) -> str | None:
        """The name of that client, empty where keys are not checked; None if it may not ask."""
        key = self.key_of(authorization, api_key)
        return None if key is None else key.client

    def start(self) -> None:
        if self._file is not None:
            self._task = asyncio.create_task(self._run(self._file), name="follow the clients' keys")

    async def aclose(self) -> None:
        """Stop following the file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def problems(self) -> tuple[str, ...]:
        """Why the file cannot be used now, if that is so."""
        return self._problems

    async def _run(self, file: Path) -> None:
        changes: Changes[FileSignature | None] | None = None
        while True:
            try:
                signature = await self._reads(read_signature, file)
                if changes is None:
                    changes, is_due = Changes(signature), True
                else:
                    is_due = changes.has_settled(signature)
                if is_due or self._problems:  # also what does not change the file may help
                    await self._renew()
                self._expire()
            except BlockedReadError as error:
                self._note(str(Problem(where=str(file), key=KEY, message=str(error))))
            except Exception:  # a bug; the next change may work
                log.exception("reading the clients' keys failed")
            await asyncio.sleep(self._interval_s)

    def _expire(self) -> None:
        assert self.known is not None
        expired = self.known.expire(self._unix_clock())
        if expired:
            log.warning("keys have expired of the clients %s", ", ".join(sorted(set(expired))))
            if self.on_renewed is not None:
                self.on_renewed()

    async def _renew(self) -> None:
        try:
            await self._reads(self._load)
        except SettingsError as error:
            self._note(*map(str, error.problems))
            return
        if self._problems:
            log.info("the clients' keys can be read again")
        self._problems = ()
        if self.on_renewed is not None:
            self.on_renewed()

    def _note(self, *problems: str) -> None:
        if problems != self._problems:
            log.error("the clients' keys stay as they are: %s", "; ".join(problems))  # no bug
        self._problems = problems
