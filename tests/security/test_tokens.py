"""Claims about extproc/security/tokens.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.security.tokens import Token, TokenError


def test_a_token_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new token counts at once; a broken file leaves the old one and says so."""
    file = tmp_path / "token"
    file.write_text("first\n", encoding="ascii")
    token = Token.from_file(file)
    assert token.matches("first") and not token.matches("second!")
    file.write_text("second!\n", encoding="ascii")
    assert token.matches("second!") and not token.matches("first")
    file.write_text("", encoding="ascii")
    assert token.matches("second!") and str(file) in caplog.text
    file.unlink()
    assert token.matches("second!")
    assert "second!" not in caplog.text + repr(token)


@pytest.mark.parametrize("secret", ["", "two words", "\x00", "schlüssel"])
def test_what_is_no_token(secret: str) -> None:
    """Nothing that a header could not carry, and the error does not show it."""
    with pytest.raises(TokenError) as caught:
        Token(secret)
    assert not secret or secret not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    """The error names it."""
    with pytest.raises(TokenError, match="no-such"):
        Token.from_file(tmp_path / "no-such")
