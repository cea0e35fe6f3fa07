"""Claims about extproc/keeper/slot_store.py: bounded, private, and never another server's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from extproc.keeper.slot_store import MIB, ORPHANED_S, Probe, SavedSlot, SlotStore, StoreError

MODEL = "org/qwen:q4"


class Kit:
    def __init__(self, folder: Path, max_mb: int = 4, machine: str = "gpu-1") -> None:
        self.now = 0.0
        self.store = SlotStore(folder, machine, max_mb, lambda: self.now)
        self.store.open()

    def save(self, identity: str, size: int = 1000, tokens: int = 100, slot: int = 0) -> SavedSlot:
        self.now += 1.0
        stem = self.store.begin(MODEL, identity, slot)
        (self.store.folder_of(MODEL) / f"{stem}.bin").write_bytes(b"x" * size)
        found = self.store.add(MODEL, stem, identity, tokens)
        assert found is not None
        return found

    def files(self) -> set[str]:
        return {path.suffix for path in self.store.folder_of(MODEL).iterdir()}


def test_only_the_same_server_gets_it_and_the_newest_comes_first(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "slots")
    first, _, last = kit.save("a"), kit.save("b"), kit.save("a")
    assert kit.store.saved(MODEL, "a") == [last, first]
    assert kit.store.saved(MODEL, "c") == kit.store.saved("other", "a") == []


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "slots")
    kit.save("a")
    folder = kit.store.folder_of(MODEL)
    for path in (kit.store.folder, folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_others_can_read_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir(mode=0o755)
    with pytest.raises(StoreError, match="chmod 700"):
        Kit(tmp_path / "slots")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="save_slots: "):
        Kit(tmp_path / "file")


def test_the_oldest_make_room(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "slots", max_mb=4)
    _, second, third = (kit.save("a", MIB + MIB // 2) for _ in range(3))
    assert kit.store.make_room(MIB)
    assert kit.store.saved(MODEL, "a") == [third, second]
    assert not kit.store.make_room(5 * MIB), "more than there may ever be"
    assert kit.store.saved(MODEL, "a") == [third, second]


def age(path: Path, seconds: float) -> None:
    when = path.lstat().st_mtime - seconds
    os.utime(path, (when, when), follow_symlinks=False)


def test_what_a_broken_save_left_over_is_deleted_in_the_end(tmp_path: Path) -> None:
    """Not at once: another keeper may be writing it."""
    kit = Kit(tmp_path / "slots")
    stem = kit.store.begin(MODEL, "a", 0)
    begun = kit.store.folder_of(MODEL) / f"{stem}.begun"
    orphan = begun.with_suffix(".bin")
    orphan.write_bytes(b"x")
    assert kit.store.make_room(0) and orphan.exists()
    age(begun, ORPHANED_S + 1)
    assert kit.store.make_room(0) and not orphan.exists() and not begun.exists()


def test_what_a_broken_restore_left_over_is_deleted_in_the_end(tmp_path: Path) -> None:
    """Its save may be old: the time of the restore counts."""
    kit = Kit(tmp_path / "slots")
    one = kit.save("a")
    file = kit.store.folder_of(MODEL) / f"{one.stem}.bin"
    age(file.with_suffix(".json"), 10 * ORPHANED_S)
    assert kit.store.take(MODEL, one)
    assert kit.store.make_room(0) and file.exists()
    age(file.with_suffix(".begun"), ORPHANED_S + 1)
    assert kit.store.make_room(0) and not file.exists()


def test_files_of_others_are_never_deleted(tmp_path: Path) -> None:
    """Neither in the folder nor behind links in it, however old they are and full the folder."""
    weights = tmp_path / "models" / "qwen-0123abcd"
    weights.mkdir(parents=True)
    kit = Kit(tmp_path / "slots", max_mb=1)
    own = kit.save("a", MIB // 2)
    folder = kit.store.folder_of(MODEL)
    (kit.store.folder / "backup").mkdir()
    others = [
        weights / "model.bin",
        kit.store.folder / "model.bin",
        kit.store.folder / "backup" / "model.bin",
        folder / "model.bin",
    ]
    for file in others:
        file.write_bytes(b"x" * MIB)
        age(file, 10 * ORPHANED_S)
    for suffix in (".bin", ".json"):
        saved = folder / f"{own.stem}{suffix}"
        (weights / saved.name).write_bytes(saved.read_bytes())
        others.append(weights / saved.name)
    (kit.store.folder / weights.name).symlink_to(weights)
    assert kit.store.make_room(MIB), "only what has a record counts, and goes"
    assert kit.store.saved(MODEL, "a") == []
    assert all(file.exists() for file in others)


def test_a_link_in_place_of_a_models_folder_is_not_used(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "slots")
    folder = kit.store.folder_of(MODEL)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="no folder of the keeper's user"):
        kit.store.folder_of(MODEL)


def test_a_link_in_place_of_a_file_is_no_slot(tmp_path: Path) -> None:
    """Its target keeps its mode, and is not restored."""
    kit = Kit(tmp_path / "slots")
    target = tmp_path / "weights"
    target.write_bytes(b"x" * 1000)
    target.chmod(0o644)
    stem = kit.store.begin(MODEL, "a", 0)
    (kit.store.folder_of(MODEL) / f"{stem}.bin").symlink_to(target)
    assert kit.store.add(MODEL, stem, "a", 100) is None
    one = kit.save("a")
    file = kit.store.folder_of(MODEL) / f"{one.stem}.bin"
    file.unlink()
    file.symlink_to(target)
    assert not kit.store.take(MODEL, one)
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_folder_with_other_files_is_rejected_and_left_alone(tmp_path: Path) -> None:
    """The folder that a keeper has made or found empty is known again by its mark."""
    models = tmp_path / "models"
    models.mkdir(mode=0o700)
    (models / "weights.bin").write_bytes(b"x")
    with pytest.raises(StoreError, match="has other files"):
        Kit(models)
    assert [path.name for path in models.iterdir()] == ["weights.bin"]
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o700)
    for _ in range(2):
        Kit(empty).save("a")


def test_a_file_is_restored_once_unless_it_proves_good(tmp_path: Path) -> None:
    """A file that brings its server down must not do so after each restart."""
    kit = Kit(tmp_path / "slots")
    one = kit.save("a")
    assert kit.store.take(MODEL, one)
    assert kit.store.saved(MODEL, "a") == [] and not kit.store.take(MODEL, one)
    kit.store.put(MODEL, one)
    assert kit.store.saved(MODEL, "a") == [one]
    (kit.store.folder_of(MODEL) / f"{one.stem}.bin").write_bytes(b"short")
    assert not kit.store.take(MODEL, one), "it is not the file that was saved"


def test_a_new_save_replaces_this_machines_own(tmp_path: Path) -> None:
    kit, other = Kit(tmp_path / "slots"), Kit(tmp_path / "slots", machine="gpu-2")
    theirs, old, new = other.save("a"), kit.save("a"), kit.save("a")
    kit.store.keep_only(MODEL, "a", {new.stem})
    assert {one.stem for one in kit.store.saved(MODEL, "a")} == {theirs.stem, new.stem}
    kit.store.drop(MODEL, old.stem)  # gone already: no error


def test_damaged_records_are_no_slots(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "slots")
    one = kit.save("a")
    folder = kit.store.folder_of(MODEL)
    for name, text in (("x", "{"), ("y", "[]"), ("z", '{"stem": "z"}'), ("w", "1")):
        (folder / f"{name}.json").write_text(text)
    (folder / "copy.json").write_text((folder / f"{one.stem}.json").read_text())
    assert kit.store.saved(MODEL, "a") == [one]


def test_a_trial_is_remembered(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "slots")
    assert kit.store.probe(MODEL, "a") is None
    probe = Probe(helps=True, prefill_s_per_token=0.01, bytes_per_token=500, move_s_per_byte=1e-9)
    kit.store.set_probe(MODEL, "a", probe)
    assert kit.store.probe(MODEL, "a") == probe
    (kit.store.folder_of(MODEL) / "b.probe").write_text('{"helps": true, "more": 1}')
    assert kit.store.probe(MODEL, "b") is None


def test_a_slot_is_worth_it_if_reading_takes_longer_than_moving() -> None:
    probe = Probe(helps=True, prefill_s_per_token=0.001, bytes_per_token=100, move_s_per_byte=1e-6)
    assert probe.is_worth(1000, 900_000) and not probe.is_worth(1000, 1_100_000)
    assert not Probe(helps=False, prefill_s_per_token=1.0).is_worth(1000, 1)
