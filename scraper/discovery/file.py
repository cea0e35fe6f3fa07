"""Endpoints by a file that may change at any time: edited, replaced by a rename, or swapped as
a symbolic link, as Kubernetes does with a mounted ConfigMap.

The file is checked every `INTERVAL_S`, by name, so it does not matter how it was replaced or on
which kind of file system it is; `docs/decisions/0020-polling-the-endpoints-file.md`. It is read
when its signature is the same twice, because a file that is being written may be valid and lack
half of the endpoints. An invalid file changes nothing: the last valid one stays in use, and one
line in the log says what is wrong and where.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from extproc.security.file_signature import Changes, FileSignature, read_signature
from extproc.security.reading import BlockedReadError, Reads, at_once
from scraper.discovery.discovered_endpoint import EndpointEntry, EndpointEntryError

INTERVAL_S = 0.25
MAX_BYTES = 1024 * 1024

Parse: TypeAlias = Callable[[bytes], Sequence[EndpointEntry]]
"""Parses the endpoints in a file; raises `EndpointEntryError`. Runs in a thread and may block."""

Take: TypeAlias = Callable[[Sequence[EndpointEntry]], None]
"""Receives all endpoints of the file; synchronous, must return quickly."""

log = logging.getLogger("coxswain.discovery")


class EndpointsFile:
    """Follows the file at `path` from `start` to `aclose`. Belongs to one event loop."""

    def __init__(
        self,
        path: Path,
        parse: Parse,
        take: Take,
        interval_s: float = INTERVAL_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.path = path
        self._parse = parse
        self._take = take
        self._interval_s = interval_s
        self._sleep = sleep
        self._reads = Reads()
        self._in_force: Sequence[EndpointEntry] | None = None
        self._problem = ""
        self._is_doubted = False
        self._task: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str:
        """The problem with the file, and the endpoints in use; empty without a problem."""
        if not self._problem:
            return ""
        if self._in_force is None:
            return f"{self._problem}; this file has provided no endpoints yet"
        return f"{self._problem}; keeping its previous {len(self._in_force)} endpoints"

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"watch {self.path}")

    def doubt(self) -> None:
        """Files that it refers to may have changed: reload it soon, even if it is unchanged."""
        self._is_doubted = True

    async def aclose(self) -> None:
        """Stop watching; the endpoints stay."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        changes: Changes[FileSignature | None] | None = None
        while True:
            try:
                signature = await self._reads(read_signature, self.path)
            except BlockedReadError as error:
                self._refuse(f"{self.path} is {error}")
                self._is_doubted = True
            else:
                if changes is None:
                    changes, self._is_doubted = Changes(signature), True
                if changes.has_settled(signature) or self._is_doubted:
                    self._is_doubted = False
                    await self._take_over()
            await self._sleep(self._interval_s)

    async def _take_over(self) -> None:
        try:
            entries = await self._reads(self._read)
            is_new = entries != self._in_force
            if is_new:
                self._take(entries)
        except EndpointEntryError as error:
            self._refuse(str(error))
            return
        except BlockedReadError as error:
            self._refuse(f"{self.path} is {error}")
            self._is_doubted = True
            return
        except Exception as error:  # noqa: BLE001 - ours; the next change may pass
            self._refuse(f"{self.path} cannot be read: {type(error).__name__}")
            return
        if self._problem:
            self._problem = ""
            log.info("%s is valid again", self.path)
        if is_new:
            log.info("%s: %d endpoints", self.path, len(entries))
            self._in_force = entries

    def _read(self) -> Sequence[EndpointEntry]:
        try:
            with open(self.path, "rb", opener=at_once) as stream:
                content = stream.read(MAX_BYTES + 1)
        except OSError as error:
            reason = (error.strerror or "unknown error").lower()
            raise EndpointEntryError(f"{self.path} cannot be read: {reason}") from None
        if len(content) > MAX_BYTES:
            raise EndpointEntryError(f"{self.path} is larger than 1 MiB")
        return tuple(self._parse(content))

    def _refuse(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        log.error("%s", self.problem)
