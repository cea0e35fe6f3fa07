"""Claims about extproc/app/security/client_keys.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from extproc.app.security.client_keys import ClientKeys
from extproc.settings import Settings, SettingsError
from extproc.settings.client_keys import digest_of
from tests.fakes.picker import until


class Followed:
    """A keys file that is followed, and what was published of it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.published: list[bytes] = []
        settings = Settings.model_validate({"clients": {"keys_file": str(file)}})
        self.keys = ClientKeys(settings, self.published.append, interval_s=0.01)

    def opens(self, key: str) -> bool:
        return bool(self.published) and digest_of(key).encode() in self.published[-1]


@asynccontextmanager
async def followed(file: Path) -> AsyncIterator[Followed]:
    subject = Followed(file)
    subject.keys.start()
    try:
        yield subject
    finally:
        await subject.keys.aclose()


async def test_each_change_is_published(tmp_path: Path) -> None:
    """Of the whole file, by its digests; that no key is left, too."""
    file = tmp_path / "keys"
    file.write_text("web sk-1\n")
    async with followed(file) as subject:
        await until(lambda: subject.opens("sk-1"))
        assert b"sk-1" not in subject.published[-1]
        file.write_text("web sk-1\nbatch sk-2\n")
        await until(lambda: subject.opens("sk-2") and subject.opens("sk-1"))
        file.write_text("")
        await until(lambda: not subject.opens("sk-1"))
        assert not subject.opens("sk-2")


async def test_a_file_that_cannot_be_used_leaves_the_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a problem until it can be used, and said once in the log, without a key."""
    file = tmp_path / "keys"
    file.write_text("web sk-1\n")
    async with followed(file) as subject:
        await until(lambda: subject.opens("sk-1"))
        file.write_text("web sk-1\nsk-secret\n")
        await until(lambda: bool(subject.keys.problems()))
        (problem,) = subject.keys.problems()
        assert f"{file}:2" in problem and "sk-" not in problem
        file.unlink()
        await until(lambda: "no such file" in "".join(subject.keys.problems()))
        assert subject.opens("sk-1")
        file.write_text("web sk-2\n")
        await until(lambda: subject.opens("sk-2"))
        assert not subject.keys.problems() and not subject.opens("sk-1")
    assert caplog.text.count("stay as they are") == 2 and "sk-" not in caplog.text


async def test_a_start_needs_a_file_that_can_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One without any key lets nobody in, which is said."""
    file = tmp_path / "keys"
    subject = Followed(file)
    with pytest.raises(SettingsError, match="no such file"):
        subject.keys.check()
    file.write_text("")
    subject.keys.check()
    assert "every client is rejected" in caplog.text


async def test_without_a_file_there_is_nothing_to_follow() -> None:
    """And nothing is published."""
    published: list[bytes] = []
    keys = ClientKeys(Settings(), published.append)
    keys.check()
    keys.start()
    await keys.aclose()
    assert not published and not keys.problems()
