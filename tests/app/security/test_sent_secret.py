"""Claims about extproc/app/security/sent_secret.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from extproc.app.security.sent_secret import SentSecret, following
from extproc.security.secret_file import SecretFileError
from tests.fakes.picker import until

QUICK_S = 0.01


def sent(secret: SentSecret) -> str:
    return dict(secret.authorization).get("authorization", "")


async def test_a_file_that_changes_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sends it hears of that. What is no secret leaves the one before, with a word."""
    file, changes = tmp_path / "key", asyncio.Event()
    file.write_text("first\n")
    secret = SentSecret("--api-key-file", file)
    assert secret.read() and sent(secret) == "Bearer first"
    assert not secret.read()
    follower = following((secret, SentSecret("--token-file", None)), changes.set, QUICK_S)
    follower.start()
    try:
        file.write_text("\n\n\n\n")
        await until(lambda: "--api-key-file" in caplog.text)
        assert sent(secret) == "Bearer first" and not changes.is_set()
        file.write_text("second\n")
        await changes.wait()
        assert sent(secret) == "Bearer second"
    finally:
        await follower.aclose()


def test_without_a_file_a_text_is_sent() -> None:
    for text, header in (("token", "Bearer token"), ("", "")):
        secret = SentSecret("--token-file", None, text)
        assert not secret.read() and sent(secret) == header


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecretFileError, match=r"^--token-file: .*none cannot be read"):
        SentSecret("--token-file", tmp_path / "none").read()
