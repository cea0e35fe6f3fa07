"""A prompt as a chain of block hashes: two prompts share blocks as far as they share text.

The hash of a block covers its own text and all text before it, so equal hashes mean equal
beginnings. The hashes are specific to this process and those with the same key (Python's keyed
hash): they cannot be forged from outside, and mean nothing elsewhere.
"""

from typing import Final

BLOCK_CHARS: Final = 256
CHARS_PER_TOKEN: Final = 4
"""A rule of thumb for text; corrected by the server's real counts."""
BLOCK_TOKENS: Final = BLOCK_CHARS // CHARS_PER_TOKEN

Seed = tuple[str | int | None, ...]
"""What else must be equal for a prompt to be the same to a server: its model and adapters."""


def chain(seed: Seed, text: str) -> tuple[int, ...]:
    """The hash of each full block of `text`, first to last; an incomplete last block has none.

    O(length of `text`), about 0.4 us a block.
    """
    salt = _salt(seed)
    link = 0
    links = []
    for start in range(0, len(text) - BLOCK_CHARS + 1, BLOCK_CHARS):
        link = hash((link, text[start : start + BLOCK_CHARS]))
        links.append(link ^ salt)
    return tuple(links)


def reseeded(links: tuple[int, ...], before: Seed, after: Seed) -> tuple[int, ...]:
    """The chain of the same text with another seed. O(blocks)."""
    change = _salt(before) ^ _salt(after)
    return tuple(link ^ change for link in links) if change else links


def _salt(seed: Seed) -> int:
    """Its hash, without that of None: in Python 3.11 that is an address in memory."""
    return hash(tuple(["\0" if part is None else part for part in seed]))
