"""Claims about extproc/security/foreign_text.py: no text of others does anything to a terminal."""

from __future__ import annotations

import json
import sys

import pytest

from extproc.security.foreign_text import escaped, json_text, printable

HARMFUL = [
    *("\x1b[2J", "\x07", "\x08", "\r", "\x00", "\x7f", "\x9b31m", "\u202e", "\u2066", "\u200b"),
    *("\u2028", "\ufeff", "\U000e0041", "\udc80"),
]


@pytest.mark.parametrize("text", HARMFUL)
def test_what_could_do_harm_is_shown_and_not_done(text: str) -> None:
    for made in (printable(f"a{text}b"), escaped(f"a{text}b"), json_text({"k": f"a{text}b"})):
        assert text[0] not in made
    assert json.loads(json_text({text: [text]})) == {text: [text]}, "JSON reads the same"


@pytest.mark.parametrize("text", ["", "plain", "größer 模型 🦙", 'a\tb\n"c" \\'])
def test_other_text_stays(text: str) -> None:
    assert escaped(text) == text
    assert json.loads(json_text(text)) == text
    assert json_text(text) == json.dumps(text, ensure_ascii=False)
    if "\n" not in text:
        assert printable(text) == text


def test_nothing_that_is_not_seen_is_left_out() -> None:
    """Of all characters those that Python does not show are escaped, but for blanks, what has no
    name yet and what is for private use."""
    import unicodedata  # noqa: PLC0415  # for this table alone

    spared = {"Zs", "Cn", "Co"}
    left = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in spared
        and not chr(code).isprintable()
        and escaped(chr(code)) == chr(code)
    ]
    assert set(left) <= {hex(ord("\t")), hex(ord("\n"))} | SHOWN_FORMATS


SHOWN_FORMATS = {hex(code) for code in (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2)}
"""Marks before Arabic and Syriac numbers: they are seen."""
SHOWN_FORMATS |= {hex(code) for code in (0x110BD, 0x110CD)}
SHOWN_FORMATS |= {hex(code) for code in range(0x13430, 0x13440)}
SHOWN_FORMATS |= {hex(code) for code in (*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B))}
