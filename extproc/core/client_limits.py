"""Limits of clients: requests at once, queued requests, tokens a minute, and budgets. Those of each
session and flow are counted in `request_groups`.

Tokens are known after the response, so they are counted then: a client may begin requests until the
tokens of the last minute have reached its limit. They drain at the limit's rate, as water from a
leaky bucket: a client that used twice its limit at once waits for a minute.

Of a budget a request reserves, until its tokens are known, the estimate of its prompt and the most
that it asks for. What it uses beyond that, as it names no bound, may exceed the budget.

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

from extproc.core.budgets import LONGEST_FIRST, Budget, Period, Spending, Spent

EVERYBODY: Final = "*"
"""The name of the limit of clients that have none of their own."""
MINUTE_S: Final = 60.0
RETRY_S: Final = 1.0
"""When a client that has too many requests may try again: one may end at any time."""
COUNTED_S: Final = 120.0
"""The tokens of a request are counted within this time after its end, or never."""


class Limited(Enum):
    """What a client has too much of."""

    REQUESTS = "requests"
    QUEUED = "queued"
    TOKENS = "tokens"
    BUDGET = "budget"
    RESERVED = "reserved"


class Draining(Protocol):
    """The slot of a request whose client left."""

    @property
    def is_draining(self) -> bool:
        """Whether its server may still work on the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimit:
    """None sets no limit. `requests` counts those that run, drain or are queued. `per_session` and
    `per_flow` are those of one session id and of one fairness id, which `RequestGroups` counts:
    further ones are queued and held back. `models` and `objectives` are the only ones that its
    requests may name; one that names no objective, and whose model has none of these, gets the
    first."""

    requests: int | None = None
    queued: int | None = None
    tokens_per_minute: int | None = None
    models: frozenset[str] | None = None
    objectives: tuple[str, ...] | None = None
    daily: Budget | None = None
    monthly: Budget | None = None
    per_session: int | None = None
    per_flow: int | None = None

    def budget_of(self, period: Period) -> Budget | None:
        """Its budget for this period."""
        return self.daily if period is Period.DAY else self.monthly

    @property
    def has_budget(self) -> bool:
        """Whether what it spends is bounded."""
        return self.daily is not None or self.monthly is not None

    @property
    def has_groups(self) -> bool:
        """Whether its sessions or its flows have a limit."""
        return self.per_session is not None or self.per_flow is not None


class Standing(NamedTuple):
    """What a client has left of its limit; None without one. Times are seconds: `reset_tokens_s`
    is when it has all tokens again."""

    limit: ClientLimit
    remaining_requests: int | None
    remaining_tokens: int | None
    reset_tokens_s: float = 0.0


class Exceeded(NamedTuple):
    """A client may not begin a request now; `retry_after_s` is when it may, as far as is known.
    `period` is that of the budget, if it is one."""

    what: Limited
    standing: Standing
    retry_after_s: float
    period: Period | None = None


@dataclass(slots=True)
class _Client:
    """The state of one client."""

    tokens_at: float
    tokens: float = 0.0
    requests: dict[str, int] = field(default_factory=dict)
    """The tokens that each has reserved."""
    queued: set[str] = field(default_factory=set)
    draining: list[Draining] = field(default_factory=list)
    uncounted: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Those that have ended and whose tokens are not known: what they reserved, and since when."""

    @property
    def active(self) -> int:
        """The requests that count."""
        return len(self.requests) + len(self.draining)

    def reserved(self, now: float) -> int:
        """The tokens that requests have reserved. O(requests)."""
        if self.uncounted:
            self.uncounted = {
                name: one for name, one in self.uncounted.items() if now < one[1] + COUNTED_S
            }
        return sum(self.requests.values()) + sum(one[0] for one in self.uncounted.values())


class ClientLimits:
    """The limits by client's name, and what each client uses. There are at most
    as many clients as there are names in the keys file. Every call is O(1), but for the requests
    of its client that drain."""

    def __init__(self, limits: Mapping[str, ClientLimit]) -> None:
        self._limits = dict(limits)
        self.has_budgets = _has_budgets(limits)
        """Whether any client has one."""
        self._clients: dict[str, _Client] = {}
        self.spending = Spending()

    def renew(self, limits: Mapping[str, ClientLimit], now: float) -> None:
        """Other limits, from now on. What clients used until now drains at the former rates; a
        request that began without a limit does not count until it ends."""
        for name, client in self._clients.items():
            before = self.limit_of(name)
            if before is not None:
                _drain(client, before, now)
            client.tokens_at = now
        self._limits = dict(limits)
        self.has_budgets = _has_budgets(limits)

    def limit_of(self, name: str) -> ClientLimit | None:
        """The client's own limit, else that of everybody; None for no client."""
        return self._limits.get(name) or self._limits.get(EVERYBODY) if name else None

    def begin(
        self, name: str, exchange_id: str, now: float, reserved_tokens: int = 0
    ) -> Exceeded | None:
        """A client's request arrived. Returns None if it may go on: then `end` must follow. Of its
        client's budgets it reserves these tokens."""
        exceeded = self.exceeded(name, now)
        if exceeded is None:
            self.adopt(name, exchange_id, now, reserved_tokens)
        return exceeded

    def exceeded(self, name: str, now: float) -> Exceeded | None:
        """Why a client may not begin a request now, None if it may."""
        limit = self.limit_of(name)
        if limit is None:
            return None
        client = self._client(name, limit, now)
        for period in LONGEST_FIRST if limit.has_budget else ():
            if self._has_spent(name, limit, period, now):
                wait_s = self.spending.ends_in_s(period, now) + RETRY_S
                return Exceeded(Limited.BUDGET, _standing(limit, client), wait_s, period)
        if limit.requests is not None and client.active >= limit.requests:
            return Exceeded(Limited.REQUESTS, _standing(limit, client), RETRY_S)
        tokens = limit.tokens_per_minute
        if tokens is not None and client.tokens >= tokens:
            wait_s = (client.tokens - tokens) * MINUTE_S / tokens + RETRY_S
            return Exceeded(Limited.TOKENS, _standing(limit, client), wait_s)
        if limit.has_budget and (reserved := client.reserved(now)):
            for period in LONGEST_FIRST:
                if self._has_spent(name, limit, period, now, reserved):
                    return Exceeded(Limited.RESERVED, _standing(limit, client), RETRY_S, period)
        return None

    def _has_spent(
        self, name: str, limit: ClientLimit, period: Period, now: float, reserved_tokens: int = 0
    ) -> bool:
        budget = limit.budget_of(period)
        if budget is None:
            return False
        return self.spending.of(name, period, now).has_reached(budget, reserved_tokens)

    def adopt(self, name: str, exchange_id: str, now: float, reserved_tokens: int = 0) -> None:
        """Count a request without a check, as one that began in another process, which checked it;
        `end` must follow here."""
        limit = self.limit_of(name)
        if limit is not None:
            self._client(name, limit, now).requests[exchange_id] = reserved_tokens

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

    def end(
        self,
        name: str,
        exchange_id: str,
        draining: Draining | None = None,
        uncounted_at: float | None = None,
    ) -> None:
        """It has ended, queued or not; no error if it had not begun. With `draining` it counts as
        long as this drains. What it reserved of a budget remains so until `spent`, if it had a slot
        until `uncounted_at`."""
        client = self._clients.get(name)
        if client is not None:
            client.queued.discard(exchange_id)
            if exchange_id in client.requests:
                reserved = client.requests.pop(exchange_id)
                limit = self.limit_of(name)
                if uncounted_at is not None and limit is not None and limit.has_budget:
                    client.uncounted[exchange_id] = reserved, uncounted_at
                if draining is not None:
                    client.draining.append(draining)

    def held(self) -> Iterator[tuple[str, str]]:
        """The name of the client and the exchange id of each request that counts now."""
        for name, client in self._clients.items():
            for exchange_id in client.requests.keys() | client.queued:
                yield name, exchange_id

    def spent(
        self, name: str, tokens: int, now: float, cost: float = 0.0, exchange_id: str = ""
    ) -> None:
        """The tokens of a request are known, and what they cost."""
        limit = self.limit_of(name)
        if limit is not None and limit.tokens_per_minute is not None:
            self._client(name, limit, now).tokens += tokens
        if self.has_budgets:
            self.spending.add(name, tokens, cost, now)
        client = self._clients.get(name)
        if client is not None:
            client.uncounted.pop(exchange_id, None)

    def spent_of(self, name: str, period: Period, now: float) -> Spent:
        """What the client has spent in this period, if any client has a budget."""
        return self.spending.of(name, period, now)

    def running(self, name: str) -> tuple[int, int]:
        """How many requests of the client count now, and how many of them are queued."""
        client = self._clients.get(name)
        return (0, 0) if client is None else (client.active, len(client.queued))

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


def _has_budgets(limits: Mapping[str, ClientLimit]) -> bool:
    return any(limit.has_budget for limit in limits.values())


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


def requests_text(count: int | None) -> str:
    """How many requests, as their client reads it."""
    return "1 request" if count == 1 else f"{count} requests"
