"""What clients ask for, drawn from a seed. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from rigs.leaving import Way

PATIENT_S = 12.0
HURRIED_MS = (1, 2, 5, 20, 100, 400)
"""Waits that are mostly too short to be met; the shortest are below the resolution of timers."""
SLOW_PIECES = 6
LARGE_BYTES = 200_000
"""More of a body than the picker reads: it gets its slot while the rest is still being sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request: what it says, how long it waits, and how its client behaves."""

    id: str
    kind: str
    tokens: int
    is_streamed: bool
    patience_ms: int
    content: str = "row the boat"
    choices: int = 1
    leaves_after_s: float | None = None
    way: Way = Way.FIN  # how it leaves
    upload_pause_s: float = 0.0  # between the pieces of its body
    padding: int = 0  # of its body, in bytes

    @property
    def body(self) -> bytes:
        body = {
            "messages": [{"role": "user", "content": self.content}],
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "stream": self.is_streamed,
        }
        if self.choices > 1:
            body["n"] = self.choices
        if self.padding:
            body["user"] = "x" * self.padding
        return json.dumps(body).encode()


def draw_request(
    source: Random, identity: str, tokens_per_s: float, ways: Sequence[Way]
) -> PlannedRequest:
    """One request of the mixed load: half of the waits are too short to be met, a quarter of the
    clients leave at a random moment in one of these ways, some upload slowly or need two slots."""
    is_streamed = source.random() < 0.5
    is_long = source.random() < 0.15
    tokens = max(1, int(tokens_per_s * (source.uniform(1, 3) if is_long else source.random() / 2)))
    is_hurried = source.random() < 0.5
    kind = "stream" if is_streamed else "whole"
    leaves_after_s, pause_s, padding, choices = None, 0.0, 0, 1
    luck = source.random()
    if luck < 0.25:
        kind, leaves_after_s = f"{kind}-leaver", source.choice((0.0, 0.05, 0.3, 1.0, 3.0))
        leaves_after_s *= source.random()
    elif luck < 0.32:
        kind, pause_s = f"{kind}-upload", source.uniform(0.05, 0.4)
        padding = source.choice((0, LARGE_BYTES))
    elif luck < 0.36 and not is_streamed:
        kind, choices = "two-slots", 2
    beginning = f"Beginning {source.randrange(8)}: " + "pull the oar, " * source.randrange(60)
    return PlannedRequest(
        id=identity,
        kind=kind,
        tokens=tokens,
        is_streamed=is_streamed,
        patience_ms=source.choice(HURRIED_MS) if is_hurried else int(PATIENT_S * 1000),
        content=beginning + identity,
        choices=choices,
        leaves_after_s=leaves_after_s,
        way=Random(identity).choice(ways),
        upload_pause_s=pause_s,
        padding=padding,
    )
