"""Slots as a row of signs that differ also without colour."""

from typing import Final

from rich.text import Text

from extproc.pb.coxswain.v1 import admin_pb2 as pb

KINDS: Final = ("leased", "foreign", "idle", "unusable")
SIGNS: Final = {"leased": "█", "foreign": "▒", "idle": "·", "unusable": "x"}
ASCII_SIGNS: Final = {"leased": "#", "foreign": "+", "idle": ".", "unusable": "x"}
STYLES: Final = {"leased": "blue", "foreign": "yellow", "idle": "dim", "unusable": "dim red"}


def slot_bar(slots: pb.Slots, width: int, *, is_ascii: bool = False) -> Text:
    """One sign for each slot; where they are more than `width`, each kind's share of it."""
    counts = {kind: getattr(slots, kind) for kind in KINDS}
    if sum(counts.values()) > width:
        counts = _shares(counts, width)
    signs = ASCII_SIGNS if is_ascii else SIGNS
    bar = Text(no_wrap=True)
    for kind, count in counts.items():
        bar.append(signs[kind] * count, style=STYLES[kind])
    return bar


def _shares(counts: dict[str, int], width: int) -> dict[str, int]:
    """Whole numbers that add up to `width`; what is there at all gets at least 1."""
    total = sum(counts.values())
    shares = {kind: max(int(count > 0), count * width // total) for kind, count in counts.items()}
    largest = max(counts, key=lambda kind: counts[kind])
    shares[largest] += width - sum(shares.values())
    return shares
