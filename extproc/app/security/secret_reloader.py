"""Notices when a file changes that the settings only name: a server's key or CA.

Looked at every second, by name, as the endpoints file is and for the same reasons. A change
counts when the files look the same twice: one in the middle of being written is not read.
Whatever goes wrong with one change, the next one is noticed too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set
from pathlib import Path

from extproc.security.file_signature import Changes, FileSignature, read_signature
from extproc.security.reading import BlockedReadError, Reads

INTERVAL_S = 1.0

log = logging.getLogger("coxswain.settings")


class SecretReloader:
    """Watches from `start` to `aclose` whatever `files` names at the time."""

    def __init__(
        self,
        files: Callable[[], Set[Path]],
        on_change: Callable[[], Awaitable[None]],
        interval_s: float = INTERVAL_S,
        *,
        is_due: bool = False,
    ) -> None:
        """With `is_due` the first look counts as a change: there may have been one since the files
        were read."""
        self._files = files
        self._on_change = on_change
        self._interval_s = interval_s
        self._is_due = is_due
        self._reads = Reads()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="watch the files with secrets")

    async def aclose(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        changes: Changes[dict[Path, FileSignature | None]] | None = None
        is_due, is_blocked = self._is_due, False
        while True:
            try:
                signatures = await self._signatures()
                if changes is None:
                    changes = Changes(signatures)
                if changes.has_settled(signatures) or is_due:
                    is_due = True  # until it has been done
                    await self._on_change()
                is_due = is_blocked = False
            except BlockedReadError as error:
                if not is_blocked:
                    log.error("keys and certificates stay as they are: a file is %s", error)
                is_blocked = True
            except Exception:  # a bug; the next change may work
                is_due = False
                log.exception("reloading a changed key or certificate failed")
            await asyncio.sleep(self._interval_s)

    async def _signatures(self) -> dict[Path, FileSignature | None]:
        files = sorted(self._files())
        return await self._reads(lambda: {file: read_signature(file) for file in files})
