"""Rounds under load. Contenders take turns: only what ran within seconds can be compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Self

from bench import load
from bench.load import Load
from bench.process import cpu_seconds
from bench.result import Say

CONNECTIONS: Final = 32
WARM_UP_S: Final = 1.0


@dataclass(kw_only=True)
class Contender:
    """What is compared with others, and what each of its rounds found."""

    name: str
    port: int
    """Of its Envoy."""
    parts: dict[str, list[int]] = field(default_factory=dict)
    """Its processes whose processor time is measured."""
    body_bytes: int = 0
    busy: list[Load] = field(default_factory=list)
    """With all connections, for the rate."""
    calm: list[Load] = field(default_factory=list)
    """With one connection, for the latency."""
    used_us: dict[str, list[float]] = field(default_factory=dict)
    """Processor time of each part for an exchange, by round."""

    @property
    def rate(self) -> float:
        """Exchanges a second."""
        return median(run.rate for run in self.busy)

    @property
    def p99_ms(self) -> float:
        """The latency under load."""
        return median(run.p99_ms for run in self.busy)

    def cost_us(self, part: str) -> float:
        """Processor time of a part for an exchange."""
        return median(self.used_us[part])

    def rate_to(self, other: Self) -> float:
        """The ratio of the rates, round by round."""
        return median(mine.rate / its.rate for mine, its in zip(self.busy, other.busy, strict=True))

    def added_ms(self, other: Self, of: Callable[[Load], float]) -> float:
        """By how much that latency is longer than the other's, round by round."""
        return median(of(mine) - of(its) for mine, its in zip(self.calm, other.calm, strict=True))

    async def play(self, round_s: float) -> None:
        """One round for the rate."""
        before_s = self._cpu_seconds()
        run = await load.run(self.port, CONNECTIONS, round_s, self.body_bytes)
        for part, seconds in self._cpu_seconds().items():
            used_us = 1e6 * (seconds - before_s[part]) / run.requests
            self.used_us.setdefault(part, []).append(used_us)
        self.busy.append(run)

    def _cpu_seconds(self) -> dict[str, float]:
        return {part: sum(map(cpu_seconds, pids)) for part, pids in self.parts.items()}


async def take_turns(
    what: str,
    contenders: Sequence[Contender],
    rounds: int,
    round_s: float,
    say: Say,
    *,
    has_calm: bool = False,
) -> None:
    """Play the rounds of all, after one that opens the connections."""
    for one in contenders:
        await load.run(one.port, CONNECTIONS, WARM_UP_S, one.body_bytes)
    for number in range(rounds):
        for one in contenders:
            say(f"{what}: round {number + 1} of {rounds}, {one.name}")
            await one.play(round_s)
            if has_calm:
                one.calm.append(await load.run(one.port, 1, round_s, one.body_bytes))


def failed(contenders: Sequence[Contender]) -> int:
    """How many requests failed in all rounds."""
    return sum(run.failures for one in contenders for run in (*one.busy, *one.calm))
