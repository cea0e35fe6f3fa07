"""The inputs that are kept in the tree, and changes of them."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CORPUS: Final = ROOT / "tests" / "data" / "fuzz"
FOUND: Final = ROOT / "build" / "fuzz"
"""Where new inputs and crashes go; not in the tree."""
MAX_BYTES: Final = 4096
MAX_CHANGES: Final = 4
_ODD: Final = (
    *(b"\x00", b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\\ud800"),
    *(b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b":", b",", b"\n", b"\t", b"%", b"&a *a", b"!!"),
    *(b"-1", b"1e999", b"NaN", b"9" * 30, b"0", b"null", b"true", b"[::1]:1", b"10.0.0.1:80"),
)


def inputs_of(target: str) -> list[Path]:
    """The files of a target's corpus, in the order of their names."""
    return sorted((CORPUS / target).iterdir())


def changed(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Some changes that parsers stumble over: cut, doubled, spliced, odd bytes, other bits."""
    for _ in range(1 + random.randrange(MAX_CHANGES)):
        at = random.randrange(len(data) + 1)
        end = min(len(data), at + random.choice((1, 2, 8, 64)))
        match random.randrange(6):
            case 0:
                data = data[:at] + data[end:]
            case 1:
                data = data[:at] + random.choice(_ODD) + data[at:]
            case 2:
                data = data[:at] + data[at:end] + data[at:]
            case 3 if at < len(data):
                byte = data[at] ^ (1 << random.randrange(8))
                data = data[:at] + bytes((byte,)) + data[at + 1 :]
            case 4:
                data = data[:at] + random.choice(others)[at:]
            case _:
                data = data[:at] + random.randbytes(end - at) + data[end:]
    return data[:MAX_BYTES]
