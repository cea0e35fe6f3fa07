"""The page of clients' keys: what each may use, what runs of it, and what it has spent.

The page itself is open, as the dashboard is, and has no data: these are given to who has the
operators' token.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from extproc.app.budget_days import days_at
from extproc.app.pages.actions import Actions
from extproc.app.security.client_keys import ClientKeys
from extproc.app.usage import Usage
from extproc.core.budgets import Budget, Period
from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.exchange_registry import ExchangeRegistry, ExchangeState
from extproc.settings.client_keys import ID_CHARS
from extproc.status.dashboard import page
from extproc.usage.counts import HOUR_S, UsageCounts
from extproc.usage.store import UsageError

HOURS: Final = 48
"""Of the curve of each client."""
MAX_CLIENTS: Final = 500
"""Those who have spent most in this month, of more."""
HAVE_SLOT: Final = frozenset({ExchangeState.RUNNING, ExchangeState.RESPONDING})
NOTHING: Final = UsageCounts()


class KeysPage:
    """Belongs to one event loop. `usage` is None where usage is not counted."""

    def __init__(
        self,
        actions: Actions,
        client_keys: ClientKeys,
        limits: ClientLimits,
        registry: ExchangeRegistry,
        usage: Usage | None,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        """`actions` know the operators' token."""
        self._actions = actions
        self._client_keys = client_keys
        self._limits = limits
        self._registry = registry
        self._usage = usage
        self._unix_clock = unix_clock
        self._page = page("keys")

    def routes(self) -> list[web.RouteDef]:
        """What to add to the server of the status pages."""
        return [web.get("/keys", self._show), web.get("/keys.json", self._data)]

    async def _show(self, _: web.Request) -> web.Response:
        found = self._page
        return web.Response(text=found.html, content_type="text/html", headers=found.headers)

    async def _data(self, request: web.Request) -> web.Response:
        if (rejected := self._actions.rejected(request)) is not None:
            return rejected
        try:
            return web.json_response(await self._as_json())
        except UsageError as error:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return web.json_response({"error": str(error)}, status=status)

    async def _as_json(self) -> dict[str, Any]:
        now = self._unix_clock()
        days, hour = days_at(now), int(now) // HOUR_S * HOUR_S
        first_hour = hour - (HOURS - 1) * HOUR_S
        today: Mapping[str, UsageCounts] = {}
        month: Mapping[str, UsageCounts] = {}
        hours: Mapping[str, Mapping[int, int]] = {}
        if self._usage is not None:
            today, month = await self._usage.by_client(days.day, days.month)
            hours = await self._usage.hours(first_hour)
        keys = self._keys()
        running, queued = self._requests()

        def entry(name: str) -> dict[str, Any]:
            limit = self._limits.limit_of(name) or ClientLimit()
            of_hours = hours.get(name, {})
            return {
                "client": name,
                "keys": keys[name],
                "running": running[name],
                "queued": queued[name],
                "limits": {
                    "requests": limit.requests,
                    "queued": limit.queued,
                    "requests_per_session": limit.per_session,
                    "requests_per_flow": limit.per_flow,
                    "tokens_per_minute": limit.tokens_per_minute,
                },
                "models": None if limit.models is None else sorted(limit.models),
                "objectives": limit.objectives,
                "day": _spent(today.get(name, NOTHING), limit.budget_of(Period.DAY)),
                "month": _spent(month.get(name, NOTHING), limit.budget_of(Period.MONTH)),
                "hours": [of_hours.get(first_hour + at * HOUR_S, 0) for at in range(HOURS)],
            }

        names = sorted(keys, key=lambda name: (-_tokens(month.get(name, NOTHING)), name))
        return {
            "checks_keys": self._client_keys.names() is not None,
            "counts_usage": self._usage is not None,
            "now": now,
            "day_ends": days.day_ends,
            "month_ends": days.month_ends,
            "total": len(names),
            "clients": [entry(name) for name in names[:MAX_CLIENTS]],
        }

    def _keys(self) -> dict[str, list[dict[str, Any]]]:
        """The keys that open, by the name of their client: the start of each digest, and when it
        expires."""
        ends = self._client_keys.ends()
        found: dict[str, list[dict[str, Any]]] = {}
        for digest, name in (self._client_keys.names() or {}).items():
            key = {"id": digest[:ID_CHARS], "expires": ends.get(digest)}
            found.setdefault(name, []).append(key)
        return found

    def _requests(self) -> tuple[Counter[str], Counter[str]]:
        """How many requests of each client have a slot, and how many are queued."""
        now = time.monotonic()
        found = [exchange.snapshot(now) for exchange in self._registry]
        return (
            Counter(each.client for each in found if each.state in HAVE_SLOT),
            Counter(each.client for each in found if each.state is ExchangeState.QUEUED),
        )


def _tokens(counts: UsageCounts) -> int:
    return counts.prompt_tokens + counts.generated_tokens


def _spent(counts: UsageCounts, budget: Budget | None) -> dict[str, Any]:
    """What was spent, and what may be; None for no bound."""
    bound = budget or Budget()
    return {
        "requests": counts.requests,
        "tokens": _tokens(counts),
        "cached_tokens": counts.cached_tokens,
        "cost": counts.cost,
        "max_tokens": bound.tokens,
        "max_cost": bound.cost,
    }
