"""The folder with saved slots: a file of llama-server and a record of ours for each.

    FOLDER/MODEL-HASH/STEM.bin     written by llama-server
    FOLDER/MODEL-HASH/STEM.json    what it is: without it the file is not used
    FOLDER/MODEL-HASH/DIGEST.probe whether saving helps that server

Nobody but the keeper's user can read it: what a slot holds is made of prompts. Several keepers may
share a folder. All calls block on the disk.
"""

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from extproc.keeper.private_file import write_private

MIB: Final = 1024 * 1024
ORPHANED_S: Final = 600.0
"""A file without a record is left over from a save that was cut off when it is this old."""


class StoreError(ValueError):
    """The folder cannot be used; `str(error)` says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSlot:
    """One saved slot. `saved_at` is in seconds since 1970."""

    stem: str
    identity: str
    machine: str
    tokens: int
    bytes: int
    saved_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a trial of a server showed: whether a restored slot is reused, and what reading a prompt
    and moving a slot cost."""

    helps: bool
    prefill_s_per_token: float = 0.0
    bytes_per_token: float = 0.0
    move_s_per_byte: float = 0.0

    def is_worth(self, tokens: int, size_bytes: float) -> bool:
        """Whether to read `tokens` again takes longer than to write and read `size_bytes`."""
        return self.helps and tokens * self.prefill_s_per_token > size_bytes * self.move_s_per_byte


class SlotStore:
    """One keeper's view of the folder. `max_mb` bounds all files there together."""

    def __init__(
        self, folder: Path, machine: str, max_mb: int, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder = folder
        self._machine = machine
        self._max_bytes = max_mb * MIB
        self._clock = clock

    def open(self) -> None:
        """Make the folder, readable by this user alone. Raises `StoreError`."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.folder.stat()
        except OSError as error:
            raise StoreError(f"save_slots: {self.folder}: {error.strerror}") from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise StoreError(f"save_slots: {self.folder} must be a folder of the keeper's user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise StoreError(
                f"save_slots: others can read {self.folder}; run chmod 700 {self.folder}"
            )

    def folder_of(self, model: str) -> Path:
        """The folder of a model's slots; it is made."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", model)[:80]
        path = self.folder / f"{name}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def saved(self, model: str, identity: str) -> list[SavedSlot]:
        """What was saved of exactly this server, the newest first."""
        found = [one for _, one in _records(self.folder_of(model)) if one.identity == identity]
        return sorted(found, key=lambda one: -one.saved_at)

    def new_stem(self, identity: str, slot: int) -> str:
        """A name for the file of a slot that is saved now."""
        return f"{identity[:16]}-{self._machine}-{slot}-{time.time_ns()}"

    def add(self, model: str, stem: str, identity: str, tokens: int) -> SavedSlot | None:
        """Record the file that llama-server has written; None if it is not there."""
        folder = self.folder_of(model)
        file = folder / f"{stem}.bin"
        try:
            file.chmod(0o600)
            size = file.stat().st_size
        except OSError:
            return None
        one = SavedSlot(
            stem=stem,
            identity=identity,
            machine=self._machine,
            tokens=tokens,
            bytes=size,
            saved_at=self._clock(),
        )
        self.put(model, one)
        return one

    def put(self, model: str, one: SavedSlot) -> None:
        """Write its record."""
        write_private(self.folder_of(model) / f"{one.stem}.json", json.dumps(asdict(one)))

    def take(self, model: str, one: SavedSlot) -> bool:
        """Remove its record before it is restored: a file that brings its server down is used once.
        False if it is not as it was saved."""
        folder = self.folder_of(model)
        try:
            (folder / f"{one.stem}.json").unlink()
            return (folder / f"{one.stem}.bin").stat().st_size == one.bytes
        except OSError:
            return False

    def drop(self, model: str, stem: str) -> None:
        """Delete a file and its record."""
        for suffix in (".json", ".bin"):
            with suppress(OSError):
                (self.folder_of(model) / f"{stem}{suffix}").unlink()

    def keep_only(self, model: str, identity: str, stems: Collection[str]) -> None:
        """Delete what this machine saved of this server before."""
        for one in self.saved(model, identity):
            if one.machine == self._machine and one.stem not in stems:
                self.drop(model, one.stem)

    def make_room(self, more_bytes: float) -> bool:
        """Delete the oldest until `more_bytes` fit; False if they cannot."""
        if more_bytes > self._max_bytes:
            return False
        recorded = sorted(
            (found for folder in self._folders() for found in _records(folder)),
            key=lambda found: found[1].saved_at,
        )
        total = self._used_bytes({path.with_suffix(".bin") for path, _ in recorded})
        for path, one in recorded:
            if total + more_bytes <= self._max_bytes:
                break
            for each in (path, path.with_suffix(".bin")):
                with suppress(OSError):
                    each.unlink()
            total -= one.bytes
        return total + more_bytes <= self._max_bytes

    def probe(self, model: str, identity: str) -> Probe | None:
        """The result of an earlier trial of this server."""
        try:
            content = json.loads((self.folder_of(model) / f"{identity}.probe").read_text())
            return Probe(**content)
        except (OSError, ValueError, TypeError):
            return None

    def set_probe(self, model: str, identity: str, probe: Probe) -> None:
        """Keep the result of a trial."""
        write_private(self.folder_of(model) / f"{identity}.probe", json.dumps(asdict(probe)))

    def _folders(self) -> Iterator[Path]:
        with suppress(OSError):
            yield from (path for path in self.folder.iterdir() if path.is_dir())

    def _used_bytes(self, recorded: Collection[Path]) -> int:
        """The size of all files; what nobody has recorded for long is deleted."""
        total = 0
        for folder in self._folders():
            for file in folder.glob("*.bin"):
                with suppress(OSError):
                    found = file.stat()
                    if file not in recorded and time.time() - found.st_mtime > ORPHANED_S:
                        file.unlink()
                    else:
                        total += found.st_size
        return total


def _records(folder: Path) -> Iterator[tuple[Path, SavedSlot]]:
    for path in folder.glob("*.json"):
        with suppress(OSError, ValueError, TypeError):
            one = SavedSlot(**json.loads(path.read_text()))
            if one.stem == path.stem:
                yield path, one
