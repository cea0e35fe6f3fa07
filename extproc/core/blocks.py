"""A prompt as a chain of blocks: two prompts share as many first blocks as they share text.

A block's hash covers its own text and all before it, so equal hashes mean equal beginnings.
The hashes are this process's own (Python's keyed hash): nobody outside can aim at one, and
they mean nothing anywhere else.
"""

from __future__ import annotations

from typing import Final

BLOCK_CHARS: Final = 256
CHARS_PER_TOKEN: Final = 4
"""A rule of thumb for text; what a server really counted corrects it."""
BLOCK_TOKENS: Final = BLOCK_CHARS // CHARS_PER_TOKEN


def chain(seed: tuple[str | int | None, ...], text: str) -> tuple[int, ...]:
    """The hash of each full block of `text`, first to last; the rest behind them has none.

    `seed` is what else must be equal for a prompt to be the same to a server: its model and
    its adapter. O(length of `text`), about 0.4 us a block.
    """
    link = hash(seed)
    links = []
    for start in range(0, len(text) - BLOCK_CHARS + 1, BLOCK_CHARS):
        link = hash((link, text[start : start + BLOCK_CHARS]))
        links.append(link)
    return tuple(links)
