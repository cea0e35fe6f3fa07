"""The folder with saved slots: a file of llama-server and a record of ours for each.

    FOLDER/.coxswain-slots         the mark: a keeper has made this folder, or found it empty
    FOLDER/MODEL-HASH/STEM.bin     written by llama-server
    FOLDER/MODEL-HASH/STEM.json    what it is: without it the file is not used
    FOLDER/MODEL-HASH/STEM.begun   the same while it is written or restored
    FOLDER/MODEL-HASH/DIGEST.probe whether saving helps that server

Nobody but the keeper's user can read it: what a slot holds is made of prompts. Several keepers may
share a folder. Files of others are safe: a folder without the mark is not used, only what has a
record is deleted, and no link in the folder is followed. All calls block on the disk.
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
"""What has begun is left over from a save or a restore that was cut off when it is this old."""
MARK: Final = ".coxswain-slots"
_MODEL_FOLDER: Final = re.compile(r".+-[0-9a-f]{8}")


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
        """Make the folder, readable by this user alone, and mark it. Raises `StoreError`."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"save_slots: {self.folder}: {error.strerror}") from None
        check_folder(self.folder)
        try:
            write_private(self.folder / MARK, "Saved slots of `coxswain keeper`: docs/models.md\n")
        except OSError as error:
            raise StoreError(f"save_slots: {self.folder}: {error.strerror}") from None

    def folder_of(self, model: str) -> Path:
        """The folder of a model's slots; it is made. Raises `OSError` if it is none of ours."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", model)[:80]
        path = self.folder / f"{name}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"
        path.mkdir(mode=0o700, exist_ok=True)
        if not _is_own_folder(path):
            raise NotADirectoryError(f"{path} is no folder of the keeper's user")
        return path

    def saved(self, model: str, identity: str) -> list[SavedSlot]:
        """What was saved of exactly this server, the newest first."""
        found = [one for _, one in _records(self.folder_of(model)) if one.identity == identity]
        return sorted(found, key=lambda one: -one.saved_at)

    def begin(self, model: str, identity: str, slot: int) -> str:
        """A name for the file of a slot that is saved now. It is recorded: if nothing follows, the
        file is deleted some time later."""
        stem = f"{identity[:16]}-{self._machine}-{slot}-{time.time_ns()}"
        write_private(self.folder_of(model) / f"{stem}.begun", "")
        return stem

    def add(self, model: str, stem: str, identity: str, tokens: int) -> SavedSlot | None:
        """Record the file that llama-server has written; None if it is not there."""
        file = self.folder_of(model) / f"{stem}.bin"
        size = _file_bytes(file)
        if size is None:
            return None
        file.chmod(0o600)
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
        folder = self.folder_of(model)
        write_private(folder / f"{one.stem}.json", json.dumps(asdict(one)))
        (folder / f"{one.stem}.begun").unlink(missing_ok=True)

    def take(self, model: str, one: SavedSlot) -> bool:
        """Set its record aside before it is restored: a file that brings its server down is used
        once. False if it is not as it was saved."""
        folder = self.folder_of(model)
        record = folder / f"{one.stem}.json"
        try:
            os.utime(record, follow_symlinks=False)
            record.rename(folder / f"{one.stem}.begun")
        except OSError:
            return False
        return _file_bytes(folder / f"{one.stem}.bin") == one.bytes

    def drop(self, model: str, stem: str) -> None:
        """Delete a file and its records."""
        _delete(self.folder_of(model), stem)

    def keep_only(self, model: str, identity: str, stems: Collection[str]) -> None:
        """Delete what this machine saved of this server before."""
        for one in self.saved(model, identity):
            if one.machine == self._machine and one.stem not in stems:
                self.drop(model, one.stem)

    def make_room(self, more_bytes: float) -> bool:
        """Delete the oldest until `more_bytes` fit; False if they cannot."""
        if more_bytes > self._max_bytes:
            return False
        now = time.time()
        for folder in self._folders():
            for begun in folder.glob("*.begun"):
                with suppress(OSError):
                    if begun.with_suffix(".json").exists():
                        begun.unlink()
                    elif now - begun.lstat().st_mtime > ORPHANED_S:
                        _delete(folder, begun.stem)
        recorded = sorted(
            (found for folder in self._folders() for found in _records(folder)),
            key=lambda found: found[1].saved_at,
        )
        total = self._used_bytes()
        for path, one in recorded:
            if total + more_bytes <= self._max_bytes:
                break
            _delete(path.parent, path.stem)
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
            for path in self.folder.iterdir():
                if _MODEL_FOLDER.fullmatch(path.name) and _is_own_folder(path):
                    yield path

    def _used_bytes(self) -> int:
        """The size of all files with a record."""
        files = {
            record.with_suffix(".bin")
            for folder in self._folders()
            for record in (*folder.glob("*.json"), *folder.glob("*.begun"))
        }
        return sum(_file_bytes(file) or 0 for file in files)


def check_folder(folder: Path) -> None:
    """Raise `StoreError` if the folder is there and is not for saved slots alone. Changes
    nothing."""
    try:
        found = folder.stat()
        names = set(os.listdir(folder)) if stat.S_ISDIR(found.st_mode) else set()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"save_slots: {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StoreError(f"save_slots: {folder} must be a folder of the keeper's user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise StoreError(f"save_slots: others can read {folder}; run chmod 700 {folder}")
    if names and MARK not in names:
        raise StoreError(
            f"save_slots: {folder} has other files and no keeper made it: name a folder that is "
            "empty or not there yet"
        )


def _is_own_folder(path: Path) -> bool:
    """Whether it is a folder of this user, and no link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _file_bytes(file: Path) -> int | None:
    """The size of a file; None if it is not there or is a link."""
    try:
        found = file.lstat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _delete(folder: Path, stem: str) -> None:
    """Delete the file and the records of this name; the file first, as the records prove it
    ours."""
    for suffix in (".bin", ".json", ".begun"):
        with suppress(OSError):
            (folder / f"{stem}{suffix}").unlink()


def _records(folder: Path) -> Iterator[tuple[Path, SavedSlot]]:
    for path in folder.glob("*.json"):
        with suppress(OSError, ValueError, TypeError):
            one = SavedSlot(**json.loads(path.read_text()))
            if one.stem == path.stem:
                yield path, one
