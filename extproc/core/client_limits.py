"""Limits of clients: requests at once, queued requests, and tokens a minute.

Tokens are known after the response, so they are counted then: a client may begin requests until the
tokens of the last minute have reached its limit. They drain at the limit's rate, as water from a
leaky bucket: a client that used twice its limit at once waits for a minute.

Requests are kept by the ids of their exchanges and not as numbers: to end one twice changes
nothing, and the auditor can compare them with the exchanges that there are. A request that its
client left counts until its server is known to be free: otherwise who asks and leaves would have
as many slots as it likes.

Pure: time is an argument, in monotonic seconds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

EVERYBODY: Final = "*"
"""The name of the limit of clients that have none of their own."""
MINUTE_S: Final = 60.0
RETRY_S: Final = 1.0
"""When a client that has too many requests may try again: one may end at any time."""


class Draining(Protocol):
    """The slot of a request whose client left."""

    @property
    def is_draining(self) -> bool:
        """Whether its server may still work on the request."""


class Limited(Enum):
    """What a client has too much of."""

    REQUESTS = "requests"
    QUEUED = "queued"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimit:
    """None sets no limit. `requests` counts those that run, drain or are queued."""

    requests: int | None = None
    queued: int | None = None
    tokens_per_minute: int | None = None


class Standing(NamedTuple):
    """What a client has left of its limit; None without one. Times are seconds: `reset_tokens_s`
    is when it has all tokens again."""

    limit: ClientLimit
    remaining_requests: int | None
    remaining_tokens: int | None
    reset_tokens_s: float = 0.0


class Exceeded(NamedTuple):
    """A client may not begin a request now; `retry_after_s` is when it may, as far as is known."""

    what: Limited
    standing: Standing
    retry_after_s: float


@dataclass(slots=True)
class _Client:
    """The state of one client."""

    tokens_at: float
    tokens: float = 0.0
    requests: set[str] = field(default_factory=set)
    queued: set[str] = field(default_factory=set)
    draining: list[Draining] = field(default_factory=list)

    @property
    def active(self) -> int:
        """The requests that count."""
        return len(self.requests) + len(self.draining)


class ClientLimits:
    """The limits by client's name, and what each client uses. There are at most
    as many clients as there are names in the keys file. Every call is O(1), but for the requests
    of its client that drain."""

    def __init__(self, limits: Mapping[str, ClientLimit]) -> None:
        self._limits = dict(limits)
        self._clients: dict[str, _Client] = {}

    def renew(self, limits: Mapping[str, ClientLimit], now: float) -> None:
        """Other limits, from now on. What clients used until now drains at the former rates; a
        request that began without a limit does not count until it ends."""
        for name, client in self._clients.items():
            before = self.limit_of(name)
            if before is not None:
                _drain(client, before, now)
            client.tokens_at = now
        self._limits = dict(limits)

    def limit_of(self, name: str) -> ClientLimit | None:
        """The client's own limit, else that of everybody; None for no client."""
        if not name:
            return None
        return self._limits.get(name) or self._limits.get(EVERYBODY)

    def begin(self, name: str, exchange_id: str, now: float) -> Exceeded | None:
        """A client's request arrived. Returns None if it may go on: then `end` must follow."""
        exceeded = self.exceeded(name, now)
        limit = self.limit_of(name)
        if exceeded is None and limit is not None:
            self._client(name, limit, now).requests.add(exchange_id)
        return exceeded

    def exceeded(self, name: str, now: float) -> Exceeded | None:
        """Why a client may not begin a request now, None if it may."""
        limit = self.limit_of(name)
        if limit is None:
            return None
        client = self._client(name, limit, now)
        if limit.requests is not None and client.active >= limit.requests:
            return Exceeded(Limited.REQUESTS, _standing(limit, client), RETRY_S)
        tokens = limit.tokens_per_minute
        if tokens is not None and client.tokens >= tokens:
            wait_s = (client.tokens - tokens) * MINUTE_S / tokens + RETRY_S
            return Exceeded(Limited.TOKENS, _standing(limit, client), wait_s)
        return None

    def adopt(self, name: str, exchange_id: str, now: float) -> None:
        """A request began in another process, which checked it; `end` must follow here."""
        limit = self.limit_of(name)
        if limit is not None:
            self._client(name, limit, now).requests.add(exchange_id)

    def queue_full(self, name: str, now: float) -> Exceeded | None:
        """Why no further request of the client may be queued, None if one may."""
        limit = self.limit_of(name)
        if limit is None or limit.queued is None:
            return None
        client = self._client(name, limit, now)
        if len(client.queued) < limit.queued:
            return None
        return Exceeded(Limited.QUEUED, _standing(limit, client), RETRY_S)

    def enqueue(self, name: str, exchange_id: str) -> None:
        """A request that has begun is queued: then `dequeue` or `end` must follow."""
        client = self._clients.get(name)
        if client is not None:
            client.queued.add(exchange_id)

    def dequeue(self, name: str, exchange_id: str) -> None:
        """It is not queued any more; no error if it was not."""
        client = self._clients.get(name)
        if client is not None:
            client.queued.discard(exchange_id)

    def end(self, name: str, exchange_id: str, draining: Draining | None = None) -> None:
        """It has ended, queued or not; no error if it had not begun. With `draining` it counts as
        long as this drains."""
        client = self._clients.get(name)
        if client is not None:
            client.queued.discard(exchange_id)
            if exchange_id in client.requests:
                client.requests.discard(exchange_id)
                if draining is not None:
                    client.draining.append(draining)

    def held(self) -> Iterator[tuple[str, str]]:
        """The name of the client and the exchange id of each request that counts now."""
        for name, client in self._clients.items():
            for exchange_id in client.requests | client.queued:
                yield name, exchange_id

    def spent(self, name: str, tokens: int, now: float) -> None:
        """The tokens of a request are known."""
        limit = self.limit_of(name)
        if limit is not None and limit.tokens_per_minute is not None:
            self._client(name, limit, now).tokens += tokens

    def standing(self, name: str, now: float) -> Standing | None:
        """What the client has left; None if nothing limits it."""
        limit = self.limit_of(name)
        return None if limit is None else _standing(limit, self._client(name, limit, now))

    def _client(self, name: str, limit: ClientLimit, now: float) -> _Client:
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _Client(now)
        _drain(client, limit, now)
        if client.draining:
            client.draining = [one for one in client.draining if one.is_draining]
        return client


def _drain(client: _Client, limit: ClientLimit, now: float) -> None:
    if limit.tokens_per_minute is not None:
        rate = limit.tokens_per_minute / MINUTE_S
        client.tokens = max(0.0, client.tokens - rate * max(0.0, now - client.tokens_at))
    client.tokens_at = now


def _standing(limit: ClientLimit, client: _Client) -> Standing:
    requests, tokens = limit.requests, limit.tokens_per_minute
    return Standing(
        limit,
        None if requests is None else max(0, requests - client.active),
        None if tokens is None else max(0, int(tokens - client.tokens)),
        0.0 if tokens is None else client.tokens * MINUTE_S / tokens,
    )
