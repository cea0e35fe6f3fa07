"""Claims about extproc/app/security/client_keys.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from extproc.app.security.client_keys import ClientKeys
from extproc.security import reading
from extproc.settings import Settings, SettingsError
from tests.fakes.picker import until

MAY = datetime(2026, 5, 1, tzinfo=UTC).timestamp()


def keys_of(file: Path) -> ClientKeys:
    settings = Settings.model_validate({"clients": {"keys_file": str(file)}})
    return ClientKeys(settings, interval_s=0.01)


@asynccontextmanager
async def followed(file: Path) -> AsyncIterator[ClientKeys]:
    subject = keys_of(file)
    subject.open()
    subject.start()
    try:
        yield subject
    finally:
        await subject.aclose()


async def test_each_change_counts(tmp_path: Path) -> None:
    """Of the whole file; that no key is left, too."""
    file = tmp_path / "keys"
    file.write_text("web sk-1\n")
    async with followed(file) as keys:
        seen: list[set[str]] = []
        keys.on_renewed = lambda: seen.append(set((keys.names() or {}).values()))
        assert keys.who_asks("Bearer sk-1", "") and not keys.who_asks("Bearer sk-2", "")
        file.write_text("web sk-1\nbatch sk-2\n")
        await until(lambda: bool(keys.who_asks("", "sk-2")))
        assert keys.who_asks("Bearer sk-1", "")
        file.write_text("none\n")
        await until(lambda: not keys.who_asks("Bearer sk-1", ""))
        assert not keys.who_asks("Bearer sk-2", "")
        file.write_text("web sk-1\n")
        await until(lambda: bool(keys.who_asks("Bearer sk-1", "")))
        await until(lambda: len(seen) >= 3)
        assert seen[-3:] == [{"web", "batch"}, set(), {"web"}]


@pytest.mark.parametrize("cut", ["", "\n", "# the keys of our clients\n"])
async def test_a_file_that_was_cut_takes_no_key_away(tmp_path: Path, cut: str) -> None:
    """Without a word that there are none, it is a problem; nor does it cost inherited keys."""
    file = tmp_path / "keys"
    file.write_text("# the keys of our clients\nweb sk-1\n")
    async with followed(file) as keys:
        file.write_text(cut)
        await until(lambda: bool(keys.problems()))
        assert "write the line `none`" in keys.problems()[0] and keys.who_asks("Bearer sk-1", "")
        file.write_text(f"{cut}none\n")
        await until(lambda: not keys.problems())
        assert not keys.who_asks("Bearer sk-1", "")


@pytest.mark.parametrize("is_blocked", [False, True])
async def test_a_file_that_blocks_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_blocked: bool
) -> None:
    """A pipe, with a writer that writes nothing or without one: the keys stay until it is a file
    again."""
    monkeypatch.setattr(reading, "READ_S", 0.05)
    file = tmp_path / "keys"
    file.write_text("web sk-1\n")
    async with followed(file) as keys:
        file.unlink()
        os.mkfifo(file)
        end = os.open(file, os.O_RDWR) if is_blocked else None
        try:
            await until(lambda: bool(keys.problems()))
            assert keys.who_asks("Bearer sk-1", "")
            file.unlink()
            file.write_text("web sk-2\n")
            await until(lambda: bool(keys.who_asks("Bearer sk-2", "")))
            await until(lambda: not keys.problems())
        finally:
            if end is not None:
                os.close(end)


async def test_a_file_that_cannot_be_used_leaves_the_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a problem until it can be used, and said once in the log, without a key."""
    file = tmp_path / "keys"
    file.write_text("web sk-1\n")
    async with followed(file) as keys:
        file.write_text("web sk-1\nsk-secret\n")
        await until(lambda: bool(keys.problems()))
        (problem,) = keys.problems()
        assert f"{file}:2" in problem and "sk-" not in problem
        file.unlink()
        await until(lambda: "no such file" in "".join(keys.problems()))
        assert keys.who_asks("Bearer sk-1", "")
        file.write_text("web sk-2\n")
        await until(lambda: bool(keys.who_asks("Bearer sk-2", "")))
        assert not keys.who_asks("Bearer sk-1", "")
        await until(lambda: not keys.problems())
    assert caplog.text.count("stay as they are") == 2 and "sk-" not in caplog.text


def test_a_start_needs_a_file_that_can_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One without any key lets nobody in, which is said."""
    file = tmp_path / "keys"
    keys = keys_of(file)
    with pytest.raises(SettingsError, match="no such file"):
        keys.open()
    file.write_text("")
    keys.open()
    assert "every client is rejected" in caplog.text and not keys.who_asks("Bearer ", "")


async def test_a_mistake_in_the_file_does_not_cost_inherited_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The process before had read it before the mistake. A file that can be used counts alone."""
    file = tmp_path / "keys"
    file.write_text("web sk-1\n")
    before = keys_of(file)
    before.open()
    file.write_text("web sk-1\nnonsense\n")
    subject = keys_of(file)
    subject.open(before.names())
    assert subject.who_asks("Bearer sk-1", "")
    assert len(subject.problems()) == 1 and "stay as they are" in caplog.text
    file.write_text("web sk-2\n")
    subject.open(before.names())
    assert subject.who_asks("Bearer sk-2", "") and not subject.who_asks("Bearer sk-1", "")


async def test_without_a_file_everybody_may_ask() -> None:
    """And nothing is followed."""
    keys = ClientKeys(Settings())
    keys.open()
    keys.start()
    await keys.aclose()
    assert keys.known is None and keys.names() is None and not keys.problems()
    assert keys.who_asks("", "") == ""


async def test_a_key_that_expires_is_revoked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a change of the file, and also if another process had read it before a mistake."""
    file = tmp_path / "keys"
    file.write_text(
        "web sk-1 expires=2026-05-01T00:00:00Z\nweb sk-2\nold sk-3 expires=2026-04-01\n"
    )
    now, settings = [MAY - 1.0], Settings.model_validate({"clients": {"keys_file": str(file)}})
    subject = ClientKeys(settings, 0.01, lambda: now[0])
    subject.open()
    assert subject.who_asks("sk-1", "") == "web" and subject.who_asks("sk-3", "") is None
    names, ends = subject.names(), subject.ends()
    renewed = asyncio.Event()
    subject.on_renewed = renewed.set
    subject.start()
    try:
        await renewed.wait()
        renewed.clear()
        now[0] = MAY
        await until(lambda: subject.who_asks("sk-1", "") is None)
        await renewed.wait()
    finally:
        await subject.aclose()
    assert subject.who_asks("sk-2", "") == "web" and "keys have expired" in caplog.text
    file.write_text("nonsense\n")
    successor = ClientKeys(settings, 0.01, lambda: now[0])
    successor.open(names, ends)
    assert successor.who_asks("sk-1", "") is None and successor.who_asks("sk-2", "") == "web"
