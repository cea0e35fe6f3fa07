"""The answers to one DNS query, and when they are accepted. Pure.

A failure (no answer, SERVFAIL, REFUSED) changes nothing: the last answer stays. An empty answer
may come from a broken name server, and accepting it drains every endpoint of that name. So it is
accepted only after `EMPTY_ANSWERS` of them in a row. A server that is really gone gets no requests
meanwhile, because its scrapes fail.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar, assert_never

EMPTY_ANSWERS = 3
MAX_ANSWERS = 1000
"""The limit of one query."""

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[T]):
    """The values of the name, for `ttl_s` seconds."""

    values: tuple[T, ...]
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Nothing:
    """The name does not exist, or has no records of the requested type."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The lookup failed; `reason` is for operators."""

    reason: str


class Service(NamedTuple):
    """One SRV record. Priority and weight are left out: free slots decide."""

    host: str
    port: int


Hosts: TypeAlias = Found[str] | Nothing | Failed
Services: TypeAlias = Found[Service] | Nothing | Failed


class DnsCache(Generic[T]):
    """The accepted answers to one query."""

    def __init__(self) -> None:
        self.values: tuple[T, ...] = ()
        self.has_answered = False
        """Whether there has been an answer."""
        self._empty_answers = 0

    def take(self, answer: Found[T] | Nothing | Failed) -> None:
        match answer:
            case Found(values=values):
                self.has_answered = True
                self._empty_answers = 0
                self.values = tuple(dict.fromkeys(values))[:MAX_ANSWERS]
            case Nothing():
                self.has_answered = True
                self._empty_answers += 1
                if self._empty_answers >= EMPTY_ANSWERS:
                    self.values = ()
            case Failed():
                pass
            case _:
                assert_never(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a name is looked up: as its TTL says, within these bounds, in seconds.

    `max_s` is short because some name servers (Docker's among them) send TTLs of minutes for
    records that change in seconds.
    """

    min_s: float = 1.0
    max_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.min_s <= self.max_s:
            raise ValueError(f"0 < min_s <= max_s must hold, not {self.min_s}, {self.max_s}")

    def next_delay_s(self, answers: Iterable[object]) -> float:
        """Seconds until the next lookup, after these answers: soon, unless all are good."""
        delay_s = self.max_s
        for answer in answers:
            ttl_s = answer.ttl_s if isinstance(answer, Found) else self.min_s
            delay_s = min(delay_s, max(self.min_s, ttl_s))
        return delay_s
